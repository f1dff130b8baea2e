"""The test kit: models that answer from a script, and the sweep that stops a worker everywhere."""

from __future__ import annotations

from changeover_worker._models.scripted import (
    ScriptedAnswer,
    ScriptedFailure,
    ScriptedModel,
    call,
    calls,
    fail,
    say,
)
from changeover_worker.testing._run import Scenario
from changeover_worker.testing._sweep import Report, sweep
from changeover_worker.testing._user import User

__all__ = [
    "Report",
    "Scenario",
    "ScriptedAnswer",
    "ScriptedFailure",
    "ScriptedModel",
    "User",
    "call",
    "calls",
    "fail",
    "say",
    "sweep",
]

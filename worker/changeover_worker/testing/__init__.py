"""The test kit: models that answer from a script."""

from __future__ import annotations

from changeover_worker._models.scripted import ScriptedModel, call, calls, fail, say

__all__ = ["ScriptedModel", "call", "calls", "fail", "say"]

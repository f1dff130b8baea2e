"""The app of tests in which an event loop is blocked: a tool that is `async` and sleeps without
letting go, once; whoever runs it again, or another tool, is not held up."""

from __future__ import annotations

import os
import time
from pathlib import Path

from changeover_shared._items import ToolResult
from changeover_worker import Agent, App, ModelRequest, tool
from changeover_worker.testing import ScriptedAnswer, ScriptedModel, call, say

SLEEP_S = 6.0
"""Longer than the lease and the lag limit that the test tells its workers."""


@tool(effect="pure")
async def hangs() -> str:
    """Block the event loop the first time."""
    _hang()
    return "done"


def _hang() -> None:
    mark = Path(os.environ["MARK"])
    if not mark.exists():
        mark.touch()
        time.sleep(SLEEP_S)


def answer(request: ModelRequest) -> ScriptedAnswer:
    """Ask for the tool, then say what it said."""
    last = request.items[-1]
    return say(str(last.output)) if isinstance(last, ToolResult) else call("hangs")


app = App(
    models={"scripted": ScriptedModel.by(answer)},
    agents=[Agent("blocked", model="scripted", tools=[hangs])],
)

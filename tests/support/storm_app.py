"""The app of a fleet that lives through storms: it streams its answers, and asks for a tool that
is `once` where the message begins with "look".

`HISTORY` names a folder in which the process records what it asks of the store, `CLOCK` is a seed
by which its clock jumps.
"""

from __future__ import annotations

import os
from pathlib import Path

from changeover_shared._items import ToolResult, UserMessage
from changeover_worker import Agent, App, ModelRequest
from changeover_worker.testing import ScriptedAnswer, ScriptedModel, call, say
from tests.support.history_recorder import record_this_process
from tests.support.jumping_clock import let_the_clock_jump
from tests.support.traced_tool import lookup


def answer(request: ModelRequest) -> ScriptedAnswer:
    """What is said depends on the last item alone, so every process answers alike."""
    last = request.items[-1]
    if isinstance(last, UserMessage) and last.text.startswith("look "):
        return call("lookup", key=last.text.removeprefix("look "))
    if isinstance(last, ToolResult):
        return say("This is what was found. " * 3)
    return say("A few words after each other. " * 5)


if "HISTORY" in os.environ:
    record_this_process(Path(os.environ["HISTORY"]), "worker")
if "CLOCK" in os.environ:
    let_the_clock_jump(int(os.environ["CLOCK"]))

app = App(
    models={"scripted": ScriptedModel.by(answer, chunk=10, pause=0.02)},
    agents=[Agent("assistant", model="scripted", tools=[lookup])],
)

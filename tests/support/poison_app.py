"""The app of a fleet with poisonous sessions: a tool ends its process, eats its memory, or blocks
its event loop, until the file that `POISON_FIXED` names is there."""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from pathlib import Path
from typing import Final

from changeover_shared._items import ToolResult, UserMessage
from changeover_worker import Agent, App, ModelRequest, tool
from changeover_worker._session import commits
from changeover_worker.testing import ScriptedAnswer, ScriptedModel, call, say

PAGE: Final = resource.getpagesize()
MIB: Final = 1024**2

if "POISON_SLACK_MS" in os.environ:
    commits.SLACK_MS = int(os.environ["POISON_SLACK_MS"])  # type: ignore[misc]


def _killed_above(limit: int) -> None:
    """What a control group does: a process that holds more than its limit is killed."""
    statm = Path("/proc/self/statm")
    while int(statm.read_text("ascii").split()[1]) * PAGE < limit:
        time.sleep(0.005)
    os.kill(os.getpid(), signal.SIGKILL)


if "POISON_MEMORY" in os.environ:
    limit = int(os.environ["POISON_MEMORY"])
    threading.Thread(target=_killed_above, args=(limit,), daemon=True).start()


@tool(effect="pure", timeout="1s")
async def poison(how: str) -> str:
    """Do what no tool should."""
    if os.path.exists(os.environ["POISON_FIXED"]):  # noqa: PTH110, ASYNC240 - it is one look
        return "harmless"
    match how:
        case "exit":
            os._exit(7)
        case "memory":
            eaten: list[bytearray] = []
            while True:
                eaten.append(bytearray(MIB))
        case _:
            while True:
                time.sleep(1)  # noqa: ASYNC251 - the mistake that this is about


def answer(request: ModelRequest) -> ScriptedAnswer:
    """What is said depends on the last item alone, so every process answers alike."""
    last = request.items[-1]
    if isinstance(last, UserMessage) and last.text.startswith("poison "):
        return call("poison", how=last.text.removeprefix("poison "))
    if isinstance(last, ToolResult):
        return say(f"It was {last.output}.")
    return say("A few words after each other. " * 3)


app = App(
    models={"scripted": ScriptedModel.by(answer, chunk=10, pause=0.02)},
    agents=[Agent("assistant", model="scripted", tools=[poison])],
)

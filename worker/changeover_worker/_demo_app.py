"""The app of `changeover demo`: an agent that needs no API key and does what the acts need.

`CHANGEOVER_DEMO_DIR` names a directory. While its file `stall` holds the number of a step, the
model stops in the middle of that step's text, as a provider may; each run of the tool adds a line
to its file `runs`, so that what really ran can be counted.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Final

from changeover_shared._items import AssistantMessage, UserMessage
from changeover_worker._agent import Agent
from changeover_worker._app import App
from changeover_worker._models.model import Emit, ModelDelta, ModelRequest, ModelResponse, TextDelta
from changeover_worker._models.scripted import ScriptedModel, call, calls, say
from changeover_worker._tools.tool import tool

REGIONS: Final = ("eu", "us")
PLAN: Final = "Let me look at both regions."
ANSWER: Final = "Both regions are healthy."
STALLS_AFTER: Final = 20
_POLL_S: Final = 0.01


@tool(effect="pure")
async def check_region(region: str) -> str:
    """Say whether a region is healthy."""
    note = _directory() / "runs"
    with note.open("a") as runs:
        runs.write(f"{region}\n")
    return f"{region} is healthy"


class DemoModel:
    """A scripted model that may be made to stop in mid-sentence."""

    name = "scripted"

    def __init__(self) -> None:
        asked = calls(*(call("check_region", region=region) for region in REGIONS), text=PLAN)
        steps = (asked, say(ANSWER))
        self._script = ScriptedModel.by(
            lambda request: steps[min(_step(request), 1)], chunk=4, pause=0.04
        )

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Answer from the script, and stop where the demo asks for it."""
        said = 0
        stall = _directory() / "stall"

        async def emit_or_stall(delta: ModelDelta) -> None:
            nonlocal said
            await emit(delta)
            if isinstance(delta, TextDelta):
                said += len(delta.text)
            # Another process decides, so there is no event to wait for.
            while said >= STALLS_AFTER and _stalled(stall, _step(request)):  # noqa: ASYNC110
                await asyncio.sleep(_POLL_S)

        return await self._script.respond(request, emit_or_stall)


def _step(request: ModelRequest) -> int:
    """The step of the turn that is asked for: how often the model has answered since the user."""
    step = 0
    for item in request.items:
        if isinstance(item, UserMessage):
            step = 0
        step += isinstance(item, AssistantMessage)
    return step


def _stalled(stall: Path, step: int) -> bool:
    try:
        return stall.read_text() == str(step)
    except FileNotFoundError:
        return False


def _directory() -> Path:
    return Path(os.environ.get("CHANGEOVER_DEMO_DIR", "."))


app = App(
    models={"scripted": DemoModel()},
    agents=[
        Agent(
            "demo",
            model="scripted",
            instructions="Say whether the regions are healthy.",
            tools=[check_region],
        )
    ],
)

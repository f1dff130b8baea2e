"""The app of tests in which something will not let go of the process: each agent's tool leaves
another thing behind, and `CLINGING` says what the lifespan does."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from changeover_shared._items import AssistantMessage, ToolCall, UserMessage
from changeover_worker import Agent, App, tool
from changeover_worker._models.model import Emit, ModelRequest, ModelResponse
from changeover_worker._process import last_resort

# In seconds, so that a test need not wait long.
last_resort.DRAINED_S = 1.0
last_resort.FORCED_S = 0.5
last_resort.LEFT_S = 0.5


@tool(timeout="100ms")
async def swallows() -> str:
    """Ignores that it is cancelled."""
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue


@tool(timeout="100ms")
async def sleeps_in_a_thread() -> None:
    """Blocks a thread of the loop's own pool."""
    await asyncio.to_thread(time.sleep, 3600)


@tool
async def starts_a_thread() -> None:
    """Starts a thread that Python waits for."""
    threading.Thread(target=time.sleep, args=(3600,)).start()


@tool
async def blocks() -> None:
    """Blocks the loop."""
    sys.stderr.write("blocked\n")
    time.sleep(3600)  # noqa: ASYNC251


@tool
async def exits() -> None:
    """Ends the process as if all were well."""
    os._exit(0)


@asynccontextmanager
async def lifespan(app: App) -> AsyncIterator[None]:
    """Hang where `CLINGING` says."""
    where = os.environ.get("CLINGING")
    if where == "start":
        sys.stderr.write("hangs\n")
        await asyncio.sleep(3600)
    yield
    if where == "clean-up":
        await asyncio.sleep(3600)


class Calls:
    """A model that calls one tool, and is content with whatever comes of it."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        if isinstance(request.items[-1], UserMessage):
            asked = ToolCall(call_id="c", name=self.name, arguments="{}")
            return ModelResponse(AssistantMessage(tool_calls=(asked,), phase="commentary"))
        return ModelResponse(AssistantMessage(text="done"))


_TOOLS = (swallows, sleeps_in_a_thread, starts_a_thread, blocks, exits)

app = App(
    agents=[Agent(each.name, model=each.name, tools=[each]) for each in _TOOLS],
    models={each.name: Calls(each.name) for each in _TOOLS},
    lifespan=lifespan,
)

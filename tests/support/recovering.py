"""Workers that die at a chosen point, for tests of what a successor makes of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from changeover_shared._checkpoint import Checkpoint, decode_checkpoint
from changeover_shared._items import AnyItem
from changeover_worker._agent import Agent
from changeover_worker._app import App
from changeover_worker._session import signals
from changeover_worker._session.signals import Moment
from changeover_worker._tools.tool import tool
from changeover_worker.testing import ScriptedModel
from tests.support.holding import Bench

UNKNOWN = "execution interrupted; result unknown after restart"
SECOND = "w:00000002"


def app_of(model: Any, *tools: Any, **agent: Any) -> App:
    return App(agents=[Agent("bot", model="main", tools=tools, **agent)], models={"main": model})


def no_model() -> ScriptedModel:
    """A model that must not be asked."""
    return ScriptedModel()


async def checkpoint_of(on: Bench) -> Checkpoint:
    body = await on.stores.worker.read_checkpoint(on.session)
    assert body is not None
    return decode_checkpoint(body, session_id=on.session)


async def revision_of(on: Bench) -> int:
    head = await on.stores.worker.read_head(on.session)
    assert head is not None
    return head.rev


async def items_of(on: Bench) -> list[AnyItem]:
    return [entry.item for entry in await on.transcript()]


async def own_keys(on: Bench) -> dict[str, Any]:
    """Every key of the session, and every index that may hold it."""
    dump = await on.stores.dump()
    return {key: value for key, value in dump.items() if not key.endswith(":workers")}


@asynccontextmanager
async def stopped_at(moment: Moment, *details: str) -> AsyncIterator[asyncio.Event]:
    """Hold the session at its first such moment; the event is set when it is there."""
    there = asyncio.Event()

    async def listener(reached: Moment, session_id: str, detail: str) -> None:
        if reached is moment and (not details or detail in details):
            there.set()
            await asyncio.Event().wait()

    signals.listen(listener)
    yield there
    signals.listen(None)


async def die_at(on: Bench, app: App, moment: Moment, *details: str) -> None:
    """Run the session until a moment, and end its worker there."""
    async with stopped_at(moment, *details) as there:
        run, held = await on.begin(app)
        await there.wait()
        await on.die(run, held)


class Blocking:
    """A tool that says that it runs, and then waits to be let go."""

    def __init__(self, name: str, effect: Any = "once") -> None:
        self.ran = 0
        self.started = asyncio.Event()
        self.go = asyncio.Event()

        @tool(name=name, effect=effect)
        async def blocking(value: str = "") -> str:
            """Wait."""
            self.ran += 1
            self.started.set()
            await self.go.wait()
            return "done"

        self.tool = blocking


async def die_in_the_tool(on: Bench, app: App, blocking: Blocking, *waiting: str) -> None:
    """Run the session until its tool runs, send what waits then, and end its worker."""
    run, held = await on.begin(app)
    await blocking.started.wait()
    for number, text in enumerate(waiting, 1):
        await on.submit(text, f"message-{number}")
    await on.die(run, held)

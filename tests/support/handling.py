"""Handlers under test: an app of one, functions for its steps, and what its turns have left."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from changeover_shared._items import StepRecord
from changeover_shared._words import Ending
from changeover_worker import App, Model, Turn
from tests.support.holding import Bench, until

Handler = Callable[[Turn[Any]], Awaitable[Any]]
Work = Callable[[], Awaitable[Any]]


def app_of(handler: Handler, *models: Model) -> App:
    """An app whose sessions `bot` this handler answers."""
    app = App(models={f"m{k}": model for k, model in enumerate(models, 1)})
    app.handler("bot")(handler)
    return app


class Works:
    """Functions for steps, and how often each has run."""

    def __init__(self) -> None:
        self.ran: Counter[str] = Counter()

    def gives(self, name: str, value: Any = None) -> Work:
        async def work() -> Any:
            self.ran[name] += 1
            return value

        return work

    def raises(self, name: str, error: Exception, times: int = 1000) -> Work:
        async def work() -> str:
            self.ran[name] += 1
            if self.ran[name] <= times:
                raise error
            return "at last"

        return work

    def hangs(self, name: str) -> Work:
        async def work() -> None:
            self.ran[name] += 1
            await asyncio.Event().wait()

        return work


async def records(on: Bench) -> list[StepRecord]:
    return [e.item for e in await on.transcript() if isinstance(e.item, StepRecord)]


async def failure(on: Bench) -> tuple[str, str]:
    """Why the only turn failed."""
    (record,) = await on.turns()
    assert record.ending is Ending.FAILED and record.error is not None
    return record.error.kind, record.error.message


async def died_in(on: Bench, app: App, works: Works, name: str) -> None:
    """Run the session until a step runs, and let its worker die there."""
    run, held = await on.begin(app)
    await until(lambda: works.ran[name] > 0, f"{name} runs")
    await on.die(run, held)


async def report(turn: Turn[None]) -> str:
    """A handler that only answers."""
    return "done"

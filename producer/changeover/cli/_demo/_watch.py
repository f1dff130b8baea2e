"""The session's journal as it grows, and waiting for what should come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from changeover._client import Client
from changeover.cli._demo._failed import DemoFailed
from changeover_shared._events import Delta, Event, StepStarted

PATIENCE_S = 20.0
"""How long anything may take; what takes longer does not happen."""
_POLL_S = 0.02

T = TypeVar("T")
E = TypeVar("E", bound=Event)


class Watch:
    """Follows one session. Use within `watching`."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._news = asyncio.Condition()

    async def feed(self, events: AsyncIterator[Event]) -> None:
        """Take events in until they end."""
        async for event in events:
            async with self._news:
                self.events.append(event)
                self._news.notify_all()

    async def first(
        self, kind: type[E], wanted: Callable[[E], bool] = lambda _: True, *, what: str
    ) -> E:
        """Wait for the first event of a kind that is wanted. Raises `DemoFailed`."""

        def found() -> E | None:
            return next((e for e in self.events if isinstance(e, kind) and wanted(e)), None)

        return await self._until(found, what)

    async def text(self, index: int, length: int, *, fence: int) -> str:
        """Wait until a step under `fence` has streamed so much text. Raises `DemoFailed`."""

        def found() -> str | None:
            said = self._streamed(index, fence)
            return said if len(said) >= length else None

        return await self._until(found, f"the text of step {index}")

    def _streamed(self, index: int, fence: int) -> str:
        steps = {
            e.step_id
            for e in self.events
            if isinstance(e, StepStarted) and e.index == index and e.fence == fence
        }
        return "".join(e.text for e in self.events if isinstance(e, Delta) and e.step_id in steps)

    async def _until(self, found: Callable[[], T | None], what: str) -> T:
        async with self._news:
            await in_time(self._news.wait_for(lambda: found() is not None), what)
            result = found()
        assert result is not None
        return result


@asynccontextmanager
async def watching(client: Client, session_id: str) -> AsyncIterator[Watch]:
    """Follow a session from its first event for as long as this lasts."""
    watch = Watch()
    reader = asyncio.create_task(watch.feed(client.follow(session_id, after="start")))
    try:
        yield watch
    finally:
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)


async def in_time(awaited: Awaitable[T], what: str) -> T:
    """Await it, but not for ever. Raises `DemoFailed`, which says what did not come."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await awaited
    except TimeoutError:
        raise DemoFailed(f"{what} did not come within {PATIENCE_S:g} s") from None


async def poll(look: Callable[[], Awaitable[T | None]], what: str) -> T:
    """Look again and again until there is something. Raises `DemoFailed`."""

    async def found() -> T:
        while (seen := await look()) is None:  # noqa: ASYNC110 - another process is looked at
            await asyncio.sleep(_POLL_S)
        return seen

    return await in_time(found(), what)

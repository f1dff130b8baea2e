"""Durable events on their way to somebody in this process: bounded, in order, with their numbers.

The bound is what makes a slow reader slow its session down: a write is over when the reader has
room for its events. A reader that has gone, or a session that has to go at once, waits for nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from structlog.typing import FilteringBoundLogger

from changeover_shared._events import Event
from changeover_worker._app import OnEvent
from changeover_worker._session.held import Drain, Held
from changeover_worker._stopping import CLEAN_UP_S, stop

READER_EVENTS: Final = 256
"""How many events may wait for a reader."""


class Reader:
    """Takes every event of one held session once it is durable, and gives them out in order.

    One task takes and one gives out, each one event at a time.
    """

    __slots__ = (
        "_at_ms",
        "_ended",
        "_epoch",
        "_events",
        "_fence",
        "_hurried",
        "_left",
        "_news",
        "_now_ms",
        "_room",
    )

    def __init__(self, now_ms: Callable[[], int], *, fence: int, epoch: int) -> None:
        self._now_ms = now_ms
        self._fence = fence
        self._epoch = epoch
        self._at_ms = 0
        self._events: deque[Event] = deque()
        self._room = asyncio.Event()
        self._news = asyncio.Event()
        self._hurried = asyncio.Event()
        self._ended = False
        self._left = False

    async def take(self, events: Sequence[Event], first_seq: int) -> None:
        """Take events that are durable; waits while the reader has no room."""
        for seq, event in enumerate(events, first_seq):
            while len(self._events) >= READER_EVENTS and not self._waits_for_nothing():
                self._room.clear()
                await self._room.wait()
            if self._left or self._ended:
                return
            self._events.append(self._numbered(event, seq))
            self._news.set()

    async def next(self) -> Event | None:
        """The next event; None when the session is not held any more and all were given out.

        `seq`, `fence` and `epoch` are the journal's; `at_ms` is this process's idea of it.
        """
        while not self._events:
            if self._ended:
                return None
            self._news.clear()
            await self._news.wait()
        self._room.set()
        return self._events.popleft()

    def leave(self) -> None:
        """Read no more: what waits is dropped, and nobody waits for this reader again."""
        self._left = True
        self._events.clear()
        self.hurry()

    def end(self) -> None:
        """Say that nothing more comes."""
        self._ended = True
        self._news.set()
        self._room.set()

    def hurry(self) -> None:
        """Let nobody wait for room any more; what comes is still given out."""
        self._hurried.set()
        self._room.set()

    async def hurried(self) -> None:
        """Wait until somebody is in a hurry."""
        await self._hurried.wait()

    def _waits_for_nothing(self) -> bool:
        return self._ended or self._hurried.is_set()

    def _numbered(self, event: Event, seq: int) -> Event:
        self._at_ms = max(self._at_ms, self._now_ms())
        own = {"seq": seq, "at_ms": self._at_ms, "fence": self._fence, "epoch": self._epoch}
        return event.model_copy(update=own)


class Telling:
    """Tells a function of the application what becomes durable, while a session is held."""

    def __init__(
        self, on_event: OnEvent, reader: Reader, held: Held, log: FilteringBoundLogger
    ) -> None:
        self._on_event = on_event
        self._reader = reader
        self._held = held
        self._log = log
        self._task = asyncio.get_running_loop().create_task(self._tell())
        held.when_urgent(reader.hurry)

    async def end(self, *, urgent: bool) -> None:
        """Return when everything was told, or two seconds after it became urgent to return.

        It becomes so when the session is wanted elsewhere now. Then, and when this is cancelled,
        the function is cancelled.
        """
        self._reader.end()
        self._held.when_urgent(self._hurry_if_wanted)
        if urgent:
            self._reader.hurry()
        hurried = asyncio.get_running_loop().create_task(self._reader.hurried())
        try:
            await asyncio.wait((self._task, hurried), return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait((self._task,), timeout=CLEAN_UP_S)
        finally:
            hurried.cancel()
            self._reader.leave()
            await stop((self._task,))

    def _hurry_if_wanted(self) -> None:
        # A lease that is given up counts as lost a little later: that is no hurry.
        if self._held.drain_level is Drain.NOW:
            self._reader.hurry()

    async def _tell(self) -> None:
        while (event := await self._reader.next()) is not None:
            try:
                await self._on_event(self._held.lease.session_id, event)
            except BaseException as error:
                self._reader.leave()
                if _is_being_cancelled():
                    raise
                self._say(error)
                return

    def _say(self, error: BaseException) -> None:
        self._log.error(
            "warning",
            code="on_event_failed",
            session=self._held.lease.session_id,
            text="it is told nothing more of this session until that is claimed again",
            exc_info=error,
        )


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0

"""A reader of one journal that reconnects after every few events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from changeover_shared._events import Event
from changeover_shared._store.store import Store

Wanted = Callable[[Event], bool]

PIECE = 3
"""How many events it reads before it connects again with the last number."""


class Follower:
    """What somebody has seen of a session who followed it from its beginning."""

    def __init__(self, store: Store, session_id: str, woke: Callable[[], None]) -> None:
        self.session_id = session_id
        self.seen: list[Event] = []
        """Everything that was delivered, in the order of its delivery."""
        self._store = store
        self._waiting: list[tuple[Wanted, asyncio.Future[Event]]] = []
        self._one_at_a_time = asyncio.Lock()
        self._woke = woke

    @property
    def last(self) -> int:
        """The number that it would reconnect with."""
        return self.seen[-1].seq if self.seen else 0

    async def read_on(self) -> None:
        """Read what is new."""
        async with self._one_at_a_time:
            while True:
                piece = await self._store.journal(self.session_id, after=self.last, limit=PIECE)
                self.seen += piece
                for event in piece:
                    self._deliver(event)
                if len(piece) < PIECE:
                    return

    def wait_for(self, wanted: Wanted) -> asyncio.Future[Event]:
        """The first event, seen or to come, that is wanted."""
        found: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
        before = next((event for event in self.seen if wanted(event)), None)
        if before is not None:
            found.set_result(before)
        else:
            self._waiting.append((wanted, found))
        return found

    def _deliver(self, event: Event) -> None:
        for wanted, found in list(self._waiting):
            if not found.done() and wanted(event):
                found.set_result(event)
                self._waiting.remove((wanted, found))
                self._woke()

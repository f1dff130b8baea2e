"""How many sessions a process may hold, and which it holds."""

from __future__ import annotations

import asyncio


class Slots:
    """Counts what is held against a limit. One loop uses it."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.room = asyncio.Event()
        """Set while something may be claimed, and for ever once nothing more may be."""
        self.idle = asyncio.Event()
        """Set while nothing is held."""
        self.closed = asyncio.Event()
        """Set once nothing more may be claimed."""
        self._held: set[object] = set()
        self._solo = False
        self._reserved = False
        self._settle()

    @property
    def free(self) -> int:
        """How many sessions may be claimed now: none beside a suspect, none once closed, and none
        beside others while the process is reserved for a suspect."""
        if self._solo or self.closed.is_set() or (self._reserved and self._held):
            return 0
        return self.limit - len(self._held)

    @property
    def count(self) -> int:
        """How many sessions are held."""
        return len(self._held)

    @property
    def empty(self) -> bool:
        """Whether nothing is held."""
        return not self._held

    @property
    def reserved(self) -> bool:
        """Whether nothing but a suspect may be claimed."""
        return self._reserved

    def reserve(self, wanted: bool) -> None:
        """Keep the process for a suspect, or do so no more; what is held goes on."""
        self._reserved = wanted
        self._settle()

    def take(self, grant: object, *, solo: bool = False) -> None:
        """Count a grant."""
        self._held.add(grant)
        self._solo = solo
        self._settle()

    def give_back(self, grant: object) -> None:
        """Forget a grant that has ended."""
        self._held.discard(grant)
        self._solo = self._solo and bool(self._held)
        self._settle()

    def close(self) -> None:
        """Nothing is claimed any more; who waits for room is woken."""
        self.closed.set()
        self._settle()

    def _settle(self) -> None:
        for event, holds in (
            (self.room, self.closed.is_set() or self.free > 0),
            (self.idle, not self._held),
        ):
            if holds:
                event.set()
            else:
                event.clear()

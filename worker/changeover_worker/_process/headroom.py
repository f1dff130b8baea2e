"""Whether memory is short, and who is told: while it is, no partition takes a message.

The leader of the sweep looks at every primary about once a second and says what it found to all
partitions of one when it changes, and to a partition that says otherwise when it comes by. What is
said ends by itself, so the leader says it again before that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from structlog.typing import FilteringBoundLogger

from changeover_shared._errors import StoreUnavailable
from changeover_shared._store.lease_store import LeaseStore
from changeover_shared._store.records import Memory, Peeked

SPAN_MS: Final = 30_000
"""How long sessions stay closed to messages when nobody measures any more."""
LOOK_S: Final = 1.0
"""How long a look may take: the sweep has partitions to visit."""
EASED: Final = 0.95
"""The part of the threshold below which memory is no longer short."""


def is_short(memory: Memory, headroom: float, *, before: bool) -> bool:
    """Whether messages must be refused: above `headroom` of what the server may use, and then
    until it uses clearly less, so that one message more or less does not turn it over."""
    threshold = headroom * memory.limit
    return memory.limit > 0 and memory.used > (EASED * threshold if before else threshold)


def must_say(wanted: bool, peeked: Peeked) -> bool:
    """Whether a partition has to be told: it says otherwise, or what it says ends soon."""
    return peeked.pressure_ms < SPAN_MS / 2 if wanted else peeked.pressure_ms > 0


class Headroom:
    """Measures and tells, for as long as its worker leads the sweep."""

    def __init__(self, store: LeaseStore, headroom: float, log: FilteringBoundLogger) -> None:
        self._store = store
        self._headroom = headroom
        self._log = log
        self._short: dict[str, Memory] = {}
        self.shares: dict[str, float] = {}
        """Which share of its memory each primary used when it answered last, where it has a
        limit."""

    async def look(self) -> None:
        """Measure every primary, and tell all partitions of one whose answer has changed.

        While one does not answer, what was found of it before stands.
        """
        try:
            async with asyncio.timeout(LOOK_S):
                found = await self._store.memory(within_s=LOOK_S / 2)
        except (StoreUnavailable, TimeoutError):
            return
        known = {name: one.used / one.limit for name, one in found.items() if one.limit}
        self.shares = {**self.shares, **known}
        before = self._short
        self._short = {name: memory for name, memory in before.items() if name not in found}
        for name, memory in found.items():
            if is_short(memory, self._headroom, before=name in before):
                self._short[name] = memory
        for name, memory in found.items():
            if (name in before) != (name in self._short):
                await self._turn(name, memory)

    async def correct(self, partition: int, peeked: Peeked) -> None:
        """Tell a partition that was just looked at, if it does not know."""
        short = await self._short_for(partition)
        if must_say(short is not None, peeked):
            await self._say([partition], short)

    def forget(self) -> None:
        """Somebody else measures from now on."""
        self._short.clear()

    async def _turn(self, name: str, memory: Memory) -> None:
        everywhere = range(self._store.keys.partitions)
        there = [one for one in everywhere if await self._store.primary_of(one) == name]
        short = self._short.get(name)
        await self._say(there, short)
        used, limit = memory.used, memory.limit
        if short is not None:
            self._log.warning("redis_memory_high", server=name, used=used, limit=limit)
        else:
            self._log.info("redis_memory_back", server=name, used=used, limit=limit)

    async def _short_for(self, partition: int) -> Memory | None:
        if not self._short:
            return None
        return self._short.get(await self._store.primary_of(partition))

    async def _say(self, partitions: Sequence[int], short: Memory | None) -> None:
        await self._store.say_pressure(partitions, short, span_ms=SPAN_MS)

"""Burst: work off what there is, then stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from changeover_shared._store.lease_store import LeaseStore
from changeover_worker._process.claim_decisions import audible
from changeover_worker._process.claims import ClaimLoop
from changeover_worker._process.slots import Slots

LOOK_S = 0.2


class Burst:
    """Rings for everything that waits, and says when nothing is left."""

    def __init__(
        self,
        store: LeaseStore,
        routes: Sequence[str],
        slots: Slots,
        claims: ClaimLoop,
    ) -> None:
        self._store = store
        self._names = audible(routes, empty=True)
        self._slots = slots
        self._claims = claims

    async def run(self, finished: Callable[[], None]) -> None:
        """Call `finished` once nothing is held, ready, due, expired or aside."""
        while True:
            idle = self._idle()
            partitions = range(self._store.keys.partitions)
            waiting = await asyncio.gather(*(self._visit(p) for p in partitions))
            if idle and self._idle() and not any(waiting):
                finished()
                return
            await asyncio.sleep(LOOK_S)

    def _idle(self) -> bool:
        claims = self._claims
        return self._slots.empty and not claims.busy and not claims.keeps_aside

    async def _visit(self, partition: int) -> bool:
        """Ring for what waits in a partition; whether anything does."""
        peeked = await self._store.peek(partition, self._names, window=1)
        for route, count in zip(self._names, peeked.counts, strict=True):
            if count:
                await self._store.ring(route, [partition])
        await self._store.place_overdue(partition, peeked)
        return any(peeked.counts) or bool(peeked.expired or peeked.due)

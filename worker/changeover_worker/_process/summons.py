"""How a worker hears of an order that was given to it.

While it waits for bells, its own call ends the wait. While it holds something, or listens no more,
the keeper looks each second. What it heard is told once, however often it comes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from changeover_shared._errors import StoreUnavailable
from changeover_shared._store.lease_store import LeaseStore
from changeover_shared._store.records import Order

Heed = Callable[[Order], None]
"""Does what an order says; called on the loop that made the summons."""


class Summons:
    """Belongs to the loop on which it is made; `heard` may be called from any thread."""

    def __init__(self, incarnation: str, heed: Heed) -> None:
        self.order: Order | None = None
        """The newest order that was heard."""
        self._incarnation = incarnation
        self._heed = heed
        self._rung = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def ring(self) -> None:
        """Say that there may be an order."""
        self._rung.set()

    def heard(self, order: Order | None) -> None:
        """Say what the order is, if there is one."""
        if order is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._take, order)

    async def run(self, store: LeaseStore) -> None:
        """Read what was rung for, until Redis answers; never returns."""
        while True:
            await self._rung.wait()
            self._rung.clear()
            try:
                self.heard(await store.read_order(self._incarnation))
            except StoreUnavailable:
                self._rung.set()
                await asyncio.sleep(random.uniform(0.2, 1.0))

    def _take(self, order: Order) -> None:
        if order.drained is None and (self.order is None or order.given_ms > self.order.given_ms):
            self.order = order
            self._heed(order)

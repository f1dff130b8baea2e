"""Counts the fleet, for as long as its worker leads the sweep."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from structlog.typing import FilteringBoundLogger

from changeover_shared._errors import ServerUnfit, StoreUnavailable
from changeover_shared._store.census import FleetCount
from changeover_shared._store.lease_store import LeaseStore
from changeover_shared._store.upkeep import STANDINGS_AT_ONCE
from changeover_shared._words import Status

EVERY_S: Final = 15.0
"""How often what waits is counted, and at most how often a walk over all sessions begins."""
LOOK_S: Final = 3.0
"""How long one look may take. Where Redis is several servers and one does not answer, nothing is
counted."""
PORTION: Final = 1000
"""After so many sessions a look goes on with the next one."""


class Walk:
    """Where the sessions of a fleet stand, as far as they were seen."""

    def __init__(self, began_ms: int) -> None:
        self.began_ms = began_ms
        self._partition = 0
        self._skip = 0
        self._seen: Counter[tuple[str, Status]] = Counter()

    async def go_on(self, store: LeaseStore) -> bool:
        """See one more portion; whether all were seen. Raises `StoreUnavailable`."""
        left = PORTION
        while left > 0 and self._partition < store.keys.partitions:
            page = await store.producer.upkeep.standings(self._partition, skip=self._skip)
            self._seen.update((one.queue, one.status) for one in page)
            left -= max(1, len(page))
            self._skip += len(page)
            if len(page) < STANDINGS_AT_ONCE:
                self._partition, self._skip = self._partition + 1, 0
        return self._partition == store.keys.partitions

    def found(self) -> dict[str, dict[str, int]]:
        """Queue -> status -> how many."""
        sessions: dict[str, dict[str, int]] = {}
        for (queue, status), count in self._seen.items():
            if status is not Status.DELETED:
                sessions.setdefault(queue, {})[status.value] = count
        return sessions


class Counting:
    """Counts a little at a time."""

    def __init__(
        self,
        store: LeaseStore,
        memory: Callable[[], Mapping[str, float]],
        log: FilteringBoundLogger,
    ) -> None:
        """`memory` says what is known of the servers' memory: the share in use by name."""
        self._store = store
        self._memory = memory
        self._log = log
        self._walk: Walk | None = None
        self._done: Walk | None = None
        self._counted_at = 0.0
        self._blind = False
        self._looking: asyncio.Task[None] | None = None

    def look(self) -> None:
        """Count on beside what the caller does, and write down what there is when it is time; what
        fails is tried again."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(), name="counting")

    def forget(self) -> None:
        """Somebody else counts now."""
        if self._looking is not None:
            self._looking.cancel()
        self._walk = self._done = self._looking = None
        self._counted_at = 0.0

    async def _look(self) -> None:
        try:
            async with asyncio.timeout(LOOK_S):
                await self._go_on()
        except (StoreUnavailable, TimeoutError):
            return  # The outage is told of elsewhere; what was counted before grows old.
        except ServerUnfit as error:
            if not self._blind:
                self._blind = True
                self._log.warning("warning", code="uncounted", text=str(error))
        else:
            self._blind = False

    async def _go_on(self) -> None:
        now = time.monotonic()
        due = now - self._counted_at >= EVERY_S
        if self._walk is None and due:
            self._walk = Walk(self._store.clock.now_ms())
        if self._walk is not None and await self._walk.go_on(self._store):
            self._done, self._walk = self._walk, None
        if due:
            self._counted_at = now
            waiting, quarantined = await self._store.census.waiting()
            done = self._done
            count = FleetCount(
                at_ms=self._store.clock.now_ms(),
                waiting=waiting,
                quarantined=quarantined,
                sessions={} if done is None else done.found(),
                walked_ms=0 if done is None else done.began_ms,
                memory=self._memory(),
            )
            await self._store.census.write(count)

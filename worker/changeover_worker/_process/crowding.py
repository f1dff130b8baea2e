"""Whether as many submissions wait as may, of one tenant or of the whole fleet, and who is told.

Sessions lie in many slots, so no script sees what waits in all of them. Each partition counts what
waits in its own; the leader of the sweep, who looks at every partition once a second, adds that up
and tells each partition that it visits whose messages it is to refuse. So a bound is passed by what
is submitted in the two seconds that this takes at most. What is said ends by itself.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from structlog.typing import FilteringBoundLogger

from changeover_shared._store.lease_store import LeaseStore
from changeover_shared._store.records import EVERYBODY, Crowd, Peeked
from changeover_worker._process.headroom import SPAN_MS

EASED: Final = 0.95
"""The part of a bound above which it stays reached, so that one submission more or less does not
turn it over."""


class Crowding:
    """Adds up and tells, for as long as its worker leads the sweep."""

    def __init__(
        self,
        store: LeaseStore,
        *,
        tenant: int | None,
        fleet: int | None,
        log: FilteringBoundLogger,
    ) -> None:
        self._store = store
        self._tenant, self._fleet = tenant, fleet
        self._log = log
        self._of: dict[int, dict[str, int]] = {}
        self._sums: Counter[str] = Counter()
        self._full: dict[str, Crowd] = {}

    @property
    def counts(self) -> bool:
        """Whether there is a bound, so that looks have to bring what waits."""
        return self._tenant is not None or self._fleet is not None

    async def saw(self, partition: int, peeked: Peeked) -> None:
        """Take in what a look at a partition has found, and tell it if it does not know."""
        if self.counts:
            self._add(partition, peeked)
        crowded = tuple(self._full.values())
        if self._must_say(peeked):
            await self._store.say_full(partition, crowded, span_ms=SPAN_MS)

    def forget(self) -> None:
        """Somebody else counts from now on."""
        self._of.clear()
        self._sums.clear()
        self._full.clear()

    def _add(self, partition: int, peeked: Peeked) -> None:
        before = self._of.get(partition, {})
        self._of[partition] = dict(peeked.waiting)
        for whose in before.keys() | peeked.waiting.keys():
            self._sums[whose] += peeked.waiting.get(whose, 0) - before.get(whose, 0)
            self._judge(whose)
            if not self._sums[whose]:
                del self._sums[whose]

    def _judge(self, whose: str) -> None:
        limit = self._fleet if whose == EVERYBODY else self._tenant
        depth, before = self._sums[whose], whose in self._full
        if is_crowded(depth, limit, before=before):
            assert limit is not None
            self._full[whose] = Crowd(whose, depth, limit)
            if not before:
                self._log.warning("inbox_full", whose=_called(whose), depth=depth, limit=limit)
        elif before:
            del self._full[whose]
            self._log.info("inbox_back", whose=_called(whose), depth=depth, limit=limit)

    def _must_say(self, peeked: Peeked) -> bool:
        told = {one.whose for one in peeked.full}
        if told - self._full.keys() and self.counts and not self._has_seen_all:
            # What the leader before has counted stands until this one has counted as much.
            return False
        left_ms = peeked.full_until_ms - self._store.clock.now_ms()
        return told != self._full.keys() or (bool(told) and left_ms < SPAN_MS / 2)

    @property
    def _has_seen_all(self) -> bool:
        return len(self._of) == self._store.keys.partitions


def is_crowded(depth: int, limit: int | None, *, before: bool) -> bool:
    """Whether so many wait that messages are refused: from the bound on, and then until clearly
    fewer do."""
    if limit is None:
        return False
    return depth >= limit or (before and depth > EASED * limit)


def _called(whose: str) -> str:
    return "the fleet" if whose == EVERYBODY else f"tenant {whose}"

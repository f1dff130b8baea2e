"""Sessions with a backlog move to workers that hold fewer.

A session that has work after each turn keeps its lease while nobody waits in its partition, which
spares a claim and a read of its context. But then a worker that came first would keep all of them
while others idle. So a worker that holds clearly more than another one that serves the same queue
releases some at the end of their turns, and the bell takes them to whoever listens longest.

And a worker without a free slot hears no bell: sessions with a backlog that never ends would keep
those of other partitions waiting for ever. So while partitions wait to be looked at, it releases as
many as there are, the oldest grants first.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

from changeover_shared._errors import StoreUnavailable
from changeover_shared._results import WorkerInfo
from changeover_shared._settings import Settings
from changeover_shared._store.keys import queue_of
from changeover_shared._store.lease_store import LeaseStore
from changeover_worker._process.sessions import Sessions

LEAST_S = 1.0
"""A session that has been here for less is not asked to move."""


def surplus(mine: int, others: Sequence[int]) -> int:
    """How many sessions to let go: none until this worker holds more than twice as many as the one
    with the fewest, so that nothing moves to and fro; then all beyond an equal share."""
    if not others or mine <= 2 * min(others) + 1:
        return 0
    share = -(-(mine + sum(others)) // (len(others) + 1))
    return max(0, mine - share)


def takers(
    workers: Iterable[WorkerInfo], queue: str, *, but: str, now_ms: int, silent_ms: int
) -> list[int]:
    """How many sessions each other worker holds that would take one of a queue."""
    return [
        one.sessions
        for one in workers
        if one.incarnation != but
        and one.state == "running"
        and queue in one.queues
        and one.sessions < one.slots
        and now_ms - one.renewed_at_ms < silent_ms
    ]


class Balance:
    """Looks at what the others hold each time that the registry may be new."""

    def __init__(
        self,
        store: LeaseStore,
        settings: Settings,
        sessions: Sessions,
        *,
        incarnation: str,
        routes: Sequence[str],
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._incarnation = incarnation
        self._routes = tuple(routes)
        self._slots = settings.concurrency
        self._renew_s = settings.renew.total_seconds()

    async def run(self) -> None:
        """Let go of what others should have; never returns."""
        while True:
            await asyncio.sleep(self._renew_s)
            if self._sessions.count >= self._slots:
                with suppress(StoreUnavailable, TimeoutError):
                    async with asyncio.timeout(self._renew_s):
                        self.make_room(sum([await self._store.rung(one) for one in self._routes]))
            if self._sessions.count > 1:
                try:
                    async with asyncio.timeout(self._renew_s):
                        workers = await self._store.registry()
                except (StoreUnavailable, TimeoutError):
                    continue
                self.level(workers)

    def make_room(self, rung: int) -> None:
        """Ask as many sessions as partitions wait to move when their turns end."""
        settled = self._sessions.held_before(time.monotonic() - min(LEAST_S, self._renew_s))
        for held in settled[:rung]:
            held.moving = True

    def level(self, workers: Sequence[WorkerInfo]) -> None:
        """Ask as many sessions as should to move when their turns end, the oldest grants first."""
        now_ms, silent_ms = self._store.clock.now_ms(), round(2000 * self._renew_s)
        settled = self._sessions.held_before(time.monotonic() - min(LEAST_S, self._renew_s))
        for queue in dict.fromkeys(queue_of(held.lease.route) for held in settled):
            others = takers(
                workers, queue, but=self._incarnation, now_ms=now_ms, silent_ms=silent_ms
            )
            of_queue = [held for held in settled if queue_of(held.lease.route) == queue]
            for held in of_queue[: surplus(self._sessions.count, others)]:
                held.moving = True

"""What waits, runs and stands still in each queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from changeover._rates import Rates, rates_by_queue
from changeover_shared._results import Pause, QueueInfo, WorkerInfo
from changeover_shared._store.records import Standing
from changeover_shared._store.store import Store
from changeover_shared._store.upkeep import STANDINGS_AT_ONCE
from changeover_shared._words import Status

LOOKED_AT_MS: Final = 2_000
"""How late the sweep looks after what has stepped aside."""

_Pauses = Sequence[Mapping[str, Pause]]


class Count:
    """What was seen of the queues so far."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self.sessions: Counter[tuple[str, Status]] = Counter()
        self.oldest: dict[str, int] = {}
        """Queue -> when its oldest ready session became ready."""

    def add(self, found: Standing) -> None:
        """Count one session."""
        status = found.status
        # It waits for a worker like the others, and is offered again in a moment.
        if found.aside_ms + LOOKED_AT_MS > self._now_ms and status in (Status.IDLE, Status.PARKED):
            status = Status.READY
        self.sessions[found.queue, status] += 1
        if status is Status.READY:
            self.oldest[found.queue] = min(found.at_ms, self.oldest.get(found.queue, found.at_ms))


async def read_queues(store: Store, workers: Sequence[WorkerInfo]) -> tuple[QueueInfo, ...]:
    """Every queue that has sessions, workers, or is paused, by name; `workers` as they are judged.

    Reads one small hash for each session, in pages.
    """
    count = Count(await store.read_time())
    for at in store.keys.all:
        skip = 0
        while True:
            page = await store.upkeep.standings(at.partition, skip=skip)
            for found in page:
                count.add(found)
            skip += len(page)
            if len(page) < STANDINGS_AT_ONCE:
                break
    return queues_of(count, workers, await store.upkeep.paused(), await store.read_time())


def queues_of(
    count: Count, workers: Sequence[WorkerInfo], pauses: _Pauses, now_ms: int
) -> tuple[QueueInfo, ...]:
    """The queues as people read them; `pauses` has one entry for each partition."""
    serving = Counter(queue for one in workers if one.state == "running" for queue in one.queues)
    rates = rates_by_queue(workers)
    seen = {queue for queue, status in count.sessions if status is not Status.DELETED}
    names = sorted(seen | set(serving) | {queue for where in pauses for queue in where})
    return tuple(_queue(name, count, serving[name], rates[name], pauses, now_ms) for name in names)


def _queue(
    name: str, count: Count, workers: int, rates: Rates, pauses: _Pauses, now_ms: int
) -> QueueInfo:
    said = [where[name] for where in pauses if name in where]
    state = "open" if not said else "paused" if len(said) == len(pauses) else "partly_paused"
    since = count.oldest.get(name)
    return QueueInfo(
        queue=name,
        state=state,
        ready=count.sessions[name, Status.READY],
        oldest_ms=None if since is None else max(0, now_ms - since),
        running=count.sessions[name, Status.HELD],
        parked=count.sessions[name, Status.PARKED],
        quarantined=count.sessions[name, Status.QUARANTINED],
        workers=workers,
        turns_per_minute=round(rates.turns),
        paused=said[0] if said else None,
    )

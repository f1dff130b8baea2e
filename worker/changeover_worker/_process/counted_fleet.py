"""What was counted of the whole fleet, as any of its workers shows it.

All workers show the same: take the greatest (`max by (queue)`), never the sum.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Final

from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from changeover_shared._errors import ServerUnfit, StoreUnavailable
from changeover_shared._store.census import FleetCount
from changeover_shared._store.lease_store import LeaseStore
from changeover_worker._process.instruments import Instruments, Labels

READ_S: Final = 5.0
ANSWER_S: Final = 2.0
STALE_MS: Final = 60_000
"""What is older is not shown: no number is better than a wrong one."""
QUEUES: Final = 500
"""The most queues that are shown, those where most waits; the others are one: `(others)`."""
OTHERS: Final = "(others)"

_SHOWN: Final[tuple[tuple[str, str, Labels], ...]] = (
    ("queue_ready", "Sessions that wait for a worker.", ("queue",)),
    (
        "queue_oldest_ready_seconds",
        "For how long the oldest of them has waited, of those that are granted next.",
        ("queue",),
    ),
    ("sessions", "Where sessions stand.", ("queue", "status")),
    ("sessions_counted_seconds", "How old that count is.", ()),
    ("quarantined", "Sessions that are stopped until an operator acts.", ()),
    ("redis_memory_ratio", "Which share of its maxmemory a server uses.", ("server",)),
    ("fleet_counted_seconds", "How old what is known of the fleet is.", ()),
)


class FleetCounts:
    """Shows the newest count that was seen. From any thread."""

    def __init__(self, made: Instruments) -> None:
        self._names = [made.describe(name, "gauge", labels, text) for name, text, labels in _SHOWN]
        self._seen: tuple[FleetCount, int, float] | None = None
        made.add(self)

    def saw(self, count: FleetCount | None, now_ms: int) -> None:
        """Show this count, read at this moment of Redis's clock."""
        self._seen = None if count is None else (count, now_ms, time.monotonic())

    async def keep_reading(self, store: LeaseStore) -> None:
        """Read what was counted, again and again; never returns."""
        while True:
            try:
                async with asyncio.timeout(ANSWER_S):
                    self.saw(await store.census.read(), store.clock.now_ms())
            except (StoreUnavailable, ServerUnfit, TimeoutError):
                pass  # What was seen before grows old.
            await asyncio.sleep(READ_S)

    def describe(self) -> Iterable[Metric]:
        """The metrics without their samples."""
        return self._families()

    def collect(self) -> Iterable[Metric]:
        """The metrics as they are."""
        families = self._families()
        seen = self._seen
        if seen is None:
            return families
        count, read_ms, read_at = seen
        now_ms = read_ms + round((time.monotonic() - read_at) * 1000)
        if now_ms - count.at_ms > STALE_MS:
            return families
        ready, oldest, sessions, walked, quarantined, memory, age = families
        names = _queues(count)
        waiting: dict[str, int] = {}
        since: dict[str, int] = {}
        for queue, one in count.waiting.items():
            name = queue if queue in names else OTHERS
            waiting[name] = waiting.get(name, 0) + one.count
            times = [ms for ms in (since.get(name, 0), one.since_ms) if ms]
            since[name] = min(times, default=0)
        for name, size in waiting.items():
            ready.add_metric([name], size)
            oldest.add_metric([name], _seconds(now_ms, since[name]))
        standing: dict[tuple[str, str], int] = {}
        for queue, statuses in count.sessions.items():
            for status, size in statuses.items():
                key = queue if queue in names else OTHERS, status
                standing[key] = standing.get(key, 0) + size
        for labels, size in standing.items():
            sessions.add_metric(labels, size)
        if count.walked_ms:
            walked.add_metric([], _seconds(now_ms, count.walked_ms))
        quarantined.add_metric([], count.quarantined)
        for server, share in count.memory.items():
            memory.add_metric([server], share)
        age.add_metric([], _seconds(now_ms, count.at_ms))
        return families

    def _families(self) -> list[GaugeMetricFamily]:
        return [
            GaugeMetricFamily(name, text, labels=labels)
            for name, (_, text, labels) in zip(self._names, _SHOWN, strict=True)
        ]


def _queues(count: FleetCount) -> set[str]:
    """The queues that are shown by name."""
    sizes = {queue: sum(found.values()) for queue, found in count.sessions.items()}
    every = {**sizes, **{queue: one.count for queue, one in count.waiting.items()}}
    return set(sorted(every, key=lambda queue: (-every[queue], queue))[:QUEUES])


def _seconds(now_ms: int, since_ms: int) -> float:
    return max(0, now_ms - since_ms) / 1000 if since_ms else 0.0

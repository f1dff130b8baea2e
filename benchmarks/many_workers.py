"""A hundred workers on one Redis: what they ask of it while idle, and how a burst reaches them.

All of them run in this process, so the burst is bound by one Python and not by Redis: what counts
is that each worker gets its part and that nothing waits for a sweep.
"""

from __future__ import annotations

import asyncio
import statistics
from collections import Counter
from collections.abc import AsyncIterator, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import structlog

from benchmarks._fleet import Fleet, accepted, fleet
from benchmarks._plan import Measurement, Row, Scale, Values
from benchmarks.apps import app
from benchmarks.idle import sent_by_worker
from changeover import Submission
from changeover_worker._process.worker import Worker

WORKERS = 100
SLOTS = 200


class Claims:
    """What the workers log: who claimed, and how long it had waited."""

    def __init__(self) -> None:
        self.ready = 0
        self.waits: list[float] = []
        self.by_worker: Counter[int] = Counter()

    def of(self, number: int) -> Any:
        """The log of one worker."""

        def take(_: Any, __: str, entry: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
            self.ready += entry["event"] == "worker_ready"
            if entry["event"] == "session_claimed":
                self.waits.append(entry["waited_ms"])
                self.by_worker[number] += 1
            raise structlog.DropEvent

        return structlog.wrap_logger(
            structlog.ReturnLogger(),
            processors=[take],
            wrapper_class=structlog.make_filtering_bound_logger(20),
        ).bind()


async def _run(scale: Scale) -> Values:
    workers = scale.of(WORKERS, 20)
    async with fleet() as found, _working(found, workers) as claims:
        await found.warm()
        await asyncio.sleep(scale.of(12, 6))  # registrations spread out, bells are waited for
        seconds = scale.of(15, 6)
        sent = await sent_by_worker(found, seconds)
        idle = sum(sum(counts.values()) for counts in sent.values()) / seconds
        claims.waits.clear()
        claims.by_worker.clear()
        count = scale.of(10_000, 1_000)
        items = [Submission(f"burst-{n}", "x", agent="constant") for n in range(count)]
        async for answer in found.client.submit_many(items):
            accepted(answer)
        await found.done()
        await _until(lambda: len(claims.waits) >= count)
    shares = [claims.by_worker[n] for n in range(workers)]
    waits = statistics.quantiles(claims.waits, n=100, method="inclusive")
    return {
        "idle": idle,
        "p50": waits[49],
        "p99": waits[98],
        "least": min(shares),
        "middle": statistics.median(shares),
        "most": max(shares),
    }


async def _until(holds: Callable[[], bool]) -> None:
    while True:
        if holds():
            return
        await asyncio.sleep(0.05)


@asynccontextmanager
async def _working(found: Fleet, count: int) -> AsyncIterator[Claims]:
    claims = Claims()
    settings = found.settings.model_copy(update={"concurrency": SLOTS})
    workers = [
        Worker(app, settings, found.server.url, incarnation=f"w{n}:00000000", log=claims.of(n))
        for n in range(count)
    ]
    tasks = [asyncio.create_task(worker.run()) for worker in workers]
    try:
        await _until(lambda: claims.ready == count)
        yield claims
    finally:
        for worker in workers:
            worker.force("measured")
        await asyncio.gather(*tasks, return_exceptions=True)


MANY_WORKERS = Measurement(
    "many-workers",
    (
        Row("idle", "commands of 100 idle workers together", "/s", "under 150"),
        Row("p50", "wait for a claim in a burst of 10 000, p50", "ms"),
        Row("p99", "wait for a claim in a burst of 10 000, p99", "ms"),
        Row("least", "sessions of the worker that got fewest", ""),
        Row("middle", "sessions of the worker in the middle", ""),
        Row("most", "sessions of the worker that got most", ""),
    ),
    _run,
)

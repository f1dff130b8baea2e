"""How long 49 tenants wait while one more has ten thousand messages queued, and while it has none.

The fleet is saturated either way: each of the 49 always has four sessions that wait or run, and a
worker has 16 slots in which a turn takes 20 ms. One Redis, one worker process, new sessions.

And how long the lowest priority waits: each of the 49 has one message of priority -2 in a fleet
that stays saturated by messages of priority 0, the ten thousand among them, until the last of the
49 has begun. That fleet has 16 partitions: only grants of its own partition pass a session by, so
the wait grows with their number.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from benchmarks._fleet import TEXT, Fleet, accepted, fleet
from benchmarks._plan import Measurement, Row, Scale, Values
from changeover import Client, Submission

TENANTS = 49
LANES = 4
SLOTS = 16
LOWEST = -2
FEW_PARTITIONS = 16
PATIENCE_S = 600


async def _run(scale: Scale) -> Values:
    seconds, flood = scale.of(12, 4), scale.of(10_000, 3_000)
    without = await _waits(0, seconds)
    beside = await _waits(flood, seconds)
    lowest, others = await _lowest(flood)
    return {
        "without": statistics.median(without),
        "beside": statistics.median(beside),
        "ratio": statistics.median(beside) / statistics.median(without),
        "worst_without": max(without),
        "worst": max(beside),
        "turns": len(beside) / seconds,
        "lowest": statistics.median(lowest),
        "lowest_worst": max(lowest),
        "others": others,
    }


async def _waits(flood: int, seconds: float) -> list[float]:
    """From submit to the start of the turn, in ms, of each turn of the 49."""
    async with _saturated(flood) as clients:
        waits: list[float] = []
        until = time.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            for name, client in clients.items():
                for lane in range(LANES):
                    more = _lane(client, f"{name}-{lane}", lambda: time.monotonic() < until)
                    group.create_task(_gather(more, waits))
        return waits


async def _lowest(flood: int) -> tuple[list[float], int]:
    """The same of one message of the lowest priority a tenant, while everything else has 0;
    and how many turns the 49 had otherwise until the last of those began."""
    async with _saturated(flood, FEW_PARTITIONS) as clients:
        lowest: list[float] = []
        others: list[float] = []

        def some_wait() -> bool:
            return len(lowest) < TENANTS

        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            for name, client in clients.items():
                for lane in range(1, LANES):
                    more = _lane(client, f"{name}-{lane}", some_wait)
                    group.create_task(_gather(more, others))
                once = _lane(client, f"{name}-low", iter((True, False)).__next__, LOWEST)
                group.create_task(_gather(once, lowest))
        return lowest, len(others)


@asynccontextmanager
async def _saturated(flood: int, partitions: int | None = None) -> AsyncIterator[dict[str, Client]]:
    """A worker whose queue holds the messages of one tenant; the clients of the others."""
    async with fleet(partitions=partitions) as found:
        with found.worker(concurrency=SLOTS):
            await found.warm()
            async with _clients(found) as clients:
                await _flood(found, flood)
                yield clients


async def _flood(found: Fleet, count: int) -> None:
    items = [Submission(f"flood-{n}", TEXT, agent="short") for n in range(count)]
    told = found.settings.model_copy(update={"tenant": "flood"})
    async with Client(found.server.url, settings=told) as client:
        async for answer in client.submit_many(items):
            accepted(answer)


async def _gather(waits: AsyncIterator[float], into: list[float]) -> None:
    into += [one async for one in waits]


async def _lane(
    client: Client, name: str, goes_on: Callable[[], bool], priority: int = 0
) -> AsyncIterator[float]:
    """One message after the other, each to a new session; how long each has waited."""
    for n in itertools.count():
        if not goes_on():
            return
        began_ms = time.time() * 1000
        outcome = await client.run(f"{name}-{n}", TEXT, agent="short", priority=priority)
        yield outcome.started_at_ms - began_ms


@asynccontextmanager
async def _clients(found: Fleet) -> AsyncIterator[dict[str, Client]]:
    async with AsyncExitStack() as stack:
        clients = {}
        for n in range(TENANTS):
            told = found.settings.model_copy(update={"tenant": f"t{n}"})
            client = Client(found.server.url, settings=told)
            clients[f"t{n}"] = await stack.enter_async_context(client)
        yield clients


FAIRNESS = Measurement(
    "fairness",
    (
        Row("without", "median wait of 49 tenants", "ms"),
        Row("beside", "the same beside one with 10 000 queued messages", "ms"),
        Row("ratio", "beside : without", "x", "under 2"),
        Row("worst_without", "the longest wait without it", "ms"),
        Row("worst", "the longest wait beside it", "ms"),
        Row("turns", "turns of the 49 beside it", "/s"),
        Row("lowest", "median wait of 49 of priority -2 beside all of priority 0", "ms"),
        Row("lowest_worst", "the longest of these waits", "ms", "bounded"),
        Row("others", "turns of the 49 in that time", ""),
    ),
    _run,
)

"""How long 49 tenants wait while one more has ten thousand messages queued, and while it has none.

The fleet is saturated either way: each of the 49 always has four sessions that wait or run, and a
worker has 16 slots in which a turn takes 20 ms. One Redis, one worker process, new sessions.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from benchmarks._fleet import TEXT, Fleet, accepted, fleet
from benchmarks._plan import Measurement, Row, Scale, Values
from changeover import Client, Submission

TENANTS = 49
LANES = 4
SLOTS = 16


async def _run(scale: Scale) -> Values:
    seconds = scale.of(12, 4)
    without = await _waits(0, seconds)
    beside = await _waits(scale.of(10_000, 3_000), seconds)
    return {
        "without": statistics.median(without),
        "beside": statistics.median(beside),
        "ratio": statistics.median(beside) / statistics.median(without),
        "worst": max(beside),
        "turns": len(beside) / seconds,
    }


async def _waits(flood: int, seconds: float) -> list[float]:
    """From submit to the start of the turn, in ms, of each turn of the 49."""
    async with fleet() as found:
        with found.worker(concurrency=SLOTS):
            await found.warm()
            async with _clients(found) as clients:
                await _flood(found, flood)
                waits: list[float] = []
                until = time.monotonic() + seconds
                async with asyncio.TaskGroup() as group:
                    for name, client in clients.items():
                        for lane in range(LANES):
                            group.create_task(_lane(client, f"{name}-{lane}", until, waits))
                return waits


async def _flood(found: Fleet, count: int) -> None:
    items = [Submission(f"flood-{n}", TEXT, agent="short") for n in range(count)]
    told = found.settings.model_copy(update={"tenant": "flood"})
    async with Client(found.server.url, settings=told) as client:
        async for answer in client.submit_many(items):
            accepted(answer)


async def _lane(client: Client, name: str, until: float, waits: list[float]) -> None:
    """One message after the other, each to a new session."""
    for n in itertools.count():
        if time.monotonic() > until:
            return
        began_ms = time.time() * 1000
        outcome = await client.run(f"{name}-{n}", TEXT, agent="short")
        waits.append(outcome.started_at_ms - began_ms)


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
        Row("worst", "the longest wait beside it", "ms"),
        Row("turns", "turns of the 49 beside it", "/s"),
    ),
    _run,
)

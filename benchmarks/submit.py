"""How fast one producer process submits: one by one, many at once, in bulk. No worker runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

from benchmarks._fleet import TEXT, Fleet, fleet
from benchmarks._plan import Measurement, Row, Scale, Values

IN_FLIGHT = 64


async def _run(scale: Scale) -> Values:
    async with fleet() as found:
        await found.submit("constant", found.in_every_partition())
        one = await _one_by_one(found, "one", scale.of(2000, 300))
        many = await _at_once(found, scale.of(8000, 1000))
        count = scale.of(20000, 2000)
        before, began = found.server.counters(), time.perf_counter()
        await found.submit("constant", (f"bulk-{n}" for n in range(count)))
        bulk = count / (time.perf_counter() - began)
        added = found.server.counters().since(before)
        return {
            "one": one,
            "many": many,
            "bulk": bulk,
            "redis_us": added.cpu_us / count,
        }


async def _one_by_one(found: Fleet, prefix: str, count: int) -> float:
    began = time.perf_counter()
    for n in range(count):
        await found.client.submit(f"{prefix}-{n}", TEXT, agent="constant")
    return count / (time.perf_counter() - began)


async def _at_once(found: Fleet, count: int) -> float:
    numbers = iter(range(count))
    began = time.perf_counter()
    await asyncio.gather(*(_submit_each(found, numbers) for _ in range(IN_FLIGHT)))
    return count / (time.perf_counter() - began)


async def _submit_each(found: Fleet, numbers: Iterator[int]) -> None:
    for n in numbers:
        await found.client.submit(f"many-{n}", TEXT, agent="constant")


SUBMIT = Measurement(
    "submit",
    (
        Row("one", "submit, one by one", "/s"),
        Row("many", f"submit, {IN_FLIGHT} in flight", "/s"),
        Row("bulk", "submit_many", "/s"),
        Row("redis_us", "Redis CPU per submit_many message", "us"),
    ),
    _run,
)

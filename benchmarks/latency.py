"""How long one submission takes when nothing else is going on: one every 50 ms, new sessions."""

from __future__ import annotations

import asyncio
import statistics
import time

from benchmarks._fleet import TEXT, Fleet, fleet
from benchmarks._plan import Measurement, Row, Scale, Values
from changeover import TurnCompleted, TurnStarted

EVERY_S = 0.05


async def _run(scale: Scale) -> Values:
    async with fleet() as found:
        with found.worker():
            await found.warm()
            first: list[float] = []
            completed: list[float] = []
            next_at = time.perf_counter()
            for n in range(scale.of(200, 40)):
                next_at += EVERY_S
                started_ms, completed_ms = await _one(found, f"s-{n}")
                first.append(started_ms)
                completed.append(completed_ms)
                await asyncio.sleep(max(0.0, next_at - time.perf_counter()))
    return {
        "first_p50": statistics.median(first),
        "first_p99": _p99(first),
        "completed_p50": statistics.median(completed),
        "completed_p99": _p99(completed),
    }


async def _one(found: Fleet, session: str) -> tuple[float, float]:
    """When a follower has seen the turn start and complete, in ms from before the submission."""
    began = time.perf_counter()
    started = completed = 0.0
    async for event in found.client.stream(session, TEXT, agent="constant"):
        now_ms = 1000 * (time.perf_counter() - began)
        if isinstance(event, TurnStarted):
            started = now_ms
        elif isinstance(event, TurnCompleted):
            completed = now_ms
    return started, completed


def _p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[98]


LATENCY = Measurement(
    "latency",
    (
        Row("first_p50", "submit to first event of the turn, p50", "ms"),
        Row("first_p99", "submit to first event of the turn, p99", "ms"),
        Row("completed_p50", "submit to completed, p50", "ms"),
        Row("completed_p99", "submit to completed, p99", "ms"),
    ),
    _run,
)

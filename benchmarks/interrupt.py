"""How long after an interrupt a follower sees its turn end: while text streams, and while the
model says nothing.

A worker that streams is told with each append. One whose model is silent writes nothing; it asks
once a second, and is told at the latest when its lease is renewed, so the moments of the
interrupts are spread over that period.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time

from benchmarks._fleet import TEXT, Fleet, fleet
from benchmarks._plan import Measurement, Row, Scale, Values
from changeover import Delta, StepStarted, TurnAbortedEvent

_SEED = 5


async def _run(scale: Scale) -> Values:
    chance = random.Random(_SEED)
    count = scale.of(40, 8)
    async with fleet() as found:
        with found.worker():
            await found.warm()
            period_s = found.settings.renew.total_seconds()
            streaming = [
                await _interrupted(found, "streaming", f"streaming-{n}", chance.uniform(0, 0.2))
                for n in range(count)
            ]
            waits = [chance.uniform(0, period_s) for _ in range(count)]
            silent = await asyncio.gather(
                *(
                    _interrupted(found, "slow", f"silent-{n}", wait_s)
                    for n, wait_s in enumerate(waits)
                )
            )
    return {
        "streaming_p50": statistics.median(streaming),
        "streaming_max": max(streaming),
        "silent_p50": statistics.median(silent),
        "silent_max": max(silent),
    }


async def _interrupted(found: Fleet, agent: str, session: str, after_s: float) -> float:
    """From before `interrupt` to when a follower has seen the turn end, in ms."""
    runs = Delta if agent == "streaming" else StepStarted
    began = ended = 0.0
    stop: asyncio.Task[None] | None = None

    async def interrupt() -> None:
        nonlocal began
        await asyncio.sleep(after_s)
        began = time.perf_counter()
        answer = await found.client.interrupt(session)
        if answer.answer != "accepted":
            raise RuntimeError(f"the interrupt of {session} was answered {answer.answer}")

    async for event in found.client.stream(session, TEXT, agent=agent):
        if isinstance(event, runs) and stop is None:
            stop = asyncio.create_task(interrupt())
        elif isinstance(event, TurnAbortedEvent):
            ended = time.perf_counter()
    if stop is None or not ended:
        raise RuntimeError(f"the turn of {session} was not aborted")
    await stop
    return 1000 * (ended - began)


INTERRUPT = Measurement(
    "interrupt",
    (
        Row("streaming_p50", "interrupt to end of a turn that streams, p50", "ms"),
        Row("streaming_max", "the same, longest of 40", "ms"),
        Row("silent_p50", "interrupt to end of a turn with a silent model, p50", "ms"),
        Row("silent_max", "the same, longest of 40", "ms", "about 1 000"),
    ),
    _run,
)

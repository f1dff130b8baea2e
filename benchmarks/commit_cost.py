"""What a turn costs when 10, 100 and 1 000 messages came before it: it must not grow.

A row of messages is submitted while the worker is stopped; it claims the session once and runs
them all. The time per turn is that between the first and the last ending of the row, by Redis's
clock, so the one read of the transcript at the claim is not in it; nor is it in the time inside
scripts.
"""

from __future__ import annotations

from itertools import repeat

from benchmarks._fleet import Fleet, fleet
from benchmarks._plan import Measurement, Row, Scale, Values
from benchmarks._processes import Process
from changeover import TurnCompleted

ROW = 60
"""As many as an inbox takes, nearly."""
SIZES = (10, 100, 1000)
SESSION = "long"


async def _run(scale: Scale) -> Values:
    values: dict[str, float] = {}
    messages = 0
    async with fleet() as found:
        with found.worker() as worker:
            await found.warm()
            for size in SIZES:
                while messages < size:
                    turns = min(ROW, (size - messages) // 2)
                    await _run_row(found, turns)
                    messages += 2 * turns
                measured = await _measured(found, worker, scale.of(ROW, 20))
                messages += 2 * scale.of(ROW, 20)
                values |= {f"{name}_{size}": value for name, value in measured.items()}
    growth = {
        f"{name}_growth": values[f"{name}_{SIZES[-1]}"] / values[f"{name}_{SIZES[0]}"]
        for name in ("bytes", "script", "wall")
    }
    return values | growth


async def _run_row(found: Fleet, turns: int) -> None:
    await found.completed(await found.submit("constant", repeat(SESSION, turns)))
    await found.done()


async def _measured(found: Fleet, worker: Process, turns: int) -> Values:
    worker.freeze()
    receipts = await found.submit("constant", repeat(SESSION, turns))
    before = found.server.counters()
    worker.thaw()
    await found.client.wait(SESSION, receipts[-1].submission_id)
    added = found.server.counters().since(before)
    await found.completed(receipts)
    await found.done()
    return {
        "bytes": added.input_bytes / turns,
        "script": added.script_us / turns,
        "wall": await _ms_between_endings(found, turns),
    }


async def _ms_between_endings(found: Fleet, turns: int) -> float:
    events = (await found.client.events(SESSION, limit=1000)).items
    ended = [event.at_ms for event in events if isinstance(event, TurnCompleted)][:turns]
    return (max(ended) - min(ended)) / (len(ended) - 1)


def _rows() -> tuple[Row, ...]:
    kinds = (
        ("bytes", "sent to Redis per turn", "B"),
        ("script", "inside Redis scripts per turn", "us"),
        ("wall", "time per turn of one session", "ms"),
    )
    rows = []
    for name, what, unit in kinds:
        rows += [Row(f"{name}_{size}", f"{what}, after {size} messages", unit) for size in SIZES]
        rows.append(Row(f"{name}_growth", f"{what}, 1 000 : 10", "x", "about 1"))
    return tuple(rows)


COMMIT_COST = Measurement("commit-cost", _rows(), _run)

"""How fast one worker process empties a queue of no-op turns, and what each turn costs.

The worker is started and warmed first, stopped where it stands while the sessions are submitted,
and let go: neither its start nor the producer is in the numbers.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from benchmarks._fleet import fleet
from benchmarks._plan import Measurement, Row, Scale, Values


async def _run(scale: Scale, *, durable: bool = False) -> Values:
    count = scale.of(6000, 600)
    async with fleet(durable=durable) as found:
        with found.worker() as worker:
            await found.warm()
            worker.freeze()
            empty = found.server.counters()
            receipts = await found.submit("constant", (f"s-{n}" for n in range(count)))
            full, cpu_s, looks = found.server.counters(), worker.cpu_s, found.looks
            began = time.perf_counter()
            worker.thaw()
            await found.done()
            seconds = time.perf_counter() - began
            looked, done = found.looks - looks, found.server.counters()
            worker_s = worker.cpu_s - cpu_s
        await found.completed(receipts)
    added, whole = done.since(full), done.since(empty)
    return {
        "turns": count / seconds,
        "scripts": added.script_calls / count,
        "scripts_all": whole.script_calls / count,
        "commands": (added.commands - looked) / count,
        "reads": added.reads / count,
        "redis_us": added.cpu_us / count,
        "worker_us": 1e6 * worker_s / count,
    }


async def _run_durable(scale: Scale) -> Values:
    return await _run(scale, durable=True)


def _rows(names: Sequence[str]) -> tuple[Row, ...]:
    return tuple(row for row in _ROWS if row.name in names)


_ROWS = (
    Row("turns", "turns of one worker process", "/s"),
    Row("scripts", "script calls per turn, by the worker", "", "at most 4"),
    Row("scripts_all", "script calls per turn, with its submission", "", "at most 4"),
    Row("commands", "Redis commands per turn, those in scripts among them", ""),
    Row("reads", "reads from sockets by Redis per turn", ""),
    Row("redis_us", "Redis CPU per turn", "us"),
    Row("worker_us", "worker CPU per turn", "us"),
)

DRAIN = Measurement("drain", _ROWS, _run)
DRAIN_AOF = Measurement("drain-aof", _rows(("turns", "redis_us", "worker_us")), _run_durable)

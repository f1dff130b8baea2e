"""A burst on workers that run already: how long its sessions wait for a claim, and who gets them.

As in `many_workers`, but each worker is a process of its own, so that the burst is bound by the
machine's cores and not by one Python.
"""

from __future__ import annotations

import json
import statistics
import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks._fleet import accepted, fleet
from benchmarks._plan import Measurement, Row, Scale, Values
from changeover import Submission

WORKERS = 8


async def _run(scale: Scale) -> Values:
    count = scale.of(10_000, 1_000)
    async with fleet() as found:
        with ExitStack() as stack:
            logs = [found.server.directory / f"worker-{n}.log" for n in range(WORKERS)]
            for log in logs:
                stack.enter_context(found.worker(log=log))
            await found.ready(logs)
            await found.warm()
            items = [Submission(f"burst-{n}", "x", agent="constant") for n in range(count)]
            began = time.monotonic()
            async for answer in found.client.submit_many(items):
                accepted(answer)
            submitted_s = time.monotonic() - began
            await found.done()
            took_s = time.monotonic() - began
        shares = [_waits(log) for log in logs]
    waits = [one for share in shares for one in share]
    if len(waits) < count:
        raise RuntimeError(f"{len(waits)} claims of {count} sessions were logged")
    cuts = statistics.quantiles(waits, n=100, method="inclusive")
    sizes = [len(share) for share in shares]
    return {
        "p50": cuts[49],
        "p99": cuts[98],
        "submitted": count / submitted_s,
        "done": count / took_s,
        "least": min(sizes),
        "middle": statistics.median(sizes),
        "most": max(sizes),
    }


def _waits(log: Path) -> list[float]:
    """How long each session of the burst that a worker claimed had waited, in ms."""
    entries = (json.loads(line) for line in log.read_text().splitlines() if line.startswith("{"))
    return [
        one["waited_ms"]
        for one in entries
        if one.get("event") == "session_claimed" and one["session"].startswith("burst-")
    ]


BURST = Measurement(
    "burst",
    (
        Row("p50", "wait for a claim in a burst of 10 000, p50", "ms"),
        Row("p99", "wait for a claim in a burst of 10 000, p99", "ms"),
        Row("submitted", "messages accepted meanwhile", "/s"),
        Row("done", "turns of the 8 processes, from the first message on", "/s"),
        Row("least", "sessions of the process that got fewest", ""),
        Row("middle", "sessions of the process in the middle", ""),
        Row("most", "sessions of the process that got most", ""),
    ),
    _run,
)

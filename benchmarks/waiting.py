"""What a session that waits for its model costs one worker process, and how fast it takes them.

`scripted` waits inside the worker; `http` waits for a model server, with the connection, the
request and the SDK's objects that it needs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from benchmarks._fleet import fleet
from benchmarks._plan import Measurement, Row, Scale, Values
from benchmarks._processes import python, running
from benchmarks.apps import MODEL_URL


async def _run_scripted(scale: Scale) -> Values:
    return await _wait_for("slow", scale.of(5000, 500), {})


async def _run_http(scale: Scale) -> Values:
    with running(python("benchmarks.slow_model_server")) as slow:
        return await _wait_for("http", scale.of(1000, 100), {MODEL_URL: slow.first_line()})


async def _wait_for(agent: str, count: int, environment: Mapping[str, str]) -> Values:
    async with fleet() as found:
        with found.worker(concurrency=count + 200, environment=environment) as worker:
            await found.warm()
            # One waiting session imports the SDK and makes its client.
            await found.submit(agent, ["first"])
            await found.held(agent, 1)
            before, began = worker.rss_bytes, time.perf_counter()
            await found.submit(agent, (f"s-{n}" for n in range(count)))
            await found.held(agent, count + 1)
            seconds = time.perf_counter() - began
            after = worker.rss_bytes
            return {
                "rss": (after - before) / count / 1024,
                "base": before / 1024**2,
                "taken_in": seconds,
            }


WAITING = Measurement(
    "waiting",
    (
        Row("rss", "worker memory per waiting session, 5 000 of them", "KiB", "under 60"),
        Row("base", "worker memory before", "MiB"),
        Row("taken_in", "submitted, claimed and waiting after", "s"),
    ),
    _run_scripted,
)
WAITING_HTTP = Measurement(
    "waiting-http",
    (
        Row("rss", "worker memory per session that waits over HTTP, 1 000", "KiB"),
        Row("base", "worker memory before", "MiB"),
        Row("taken_in", "submitted, claimed and waiting after", "s"),
    ),
    _run_http,
)

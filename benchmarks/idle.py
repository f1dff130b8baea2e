"""What workers with nothing to do ask of Redis, told apart by who asks.

MONITOR shows every command with the connection that sent it, and marks those inside scripts;
CLIENT LIST says whose connection that is. One of two workers leads the sweep, the other does not.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter

from benchmarks._fleet import Fleet, fleet
from benchmarks._plan import Measurement, Row, Scale, Values
from changeover import Operator
from changeover_shared._server.process import LOOPBACK

_SENT = re.compile(rb'\+[\d.]+ \[\d+ (?P<from>[^\]]+)\] "(?P<name>[^"]+)"')


async def _run(scale: Scale) -> Values:
    seconds = scale.of(15, 6)
    async with fleet() as found:
        with found.worker() as one, found.worker() as two:
            await found.warm()
            await _both_registered(found)
            cpu_s = one.cpu_s, two.cpu_s
            sent = await sent_by_worker(found, seconds)
            cpu_s = one.cpu_s - cpu_s[0], two.cpu_s - cpu_s[1]
    other, leader = sorted(sum(counts.values()) for counts in sent.values())
    return {
        "other": other / seconds,
        "sweep": (leader - other) / seconds,
        "cpu": 100 * min(cpu_s) / seconds,
        "sweep_cpu": 100 * (max(cpu_s) - min(cpu_s)) / seconds,
    }


async def _both_registered(found: Fleet) -> None:
    async with Operator(found.server.url) as operator:
        while True:
            if len(await operator.workers()) == 2:
                return
            await asyncio.sleep(0.05)


async def sent_by_worker(found: Fleet, seconds: float) -> dict[str, Counter[str]]:
    """Worker -> command -> how often it was sent within so many seconds."""
    owners = _owners(found)
    lines = await _monitor(found.server.port, seconds)
    owners |= _owners(found)
    sent: dict[str, Counter[str]] = {}
    for line in lines:
        seen = _SENT.match(line)
        owner = owners.get(seen["from"].decode()) if seen else None
        if seen and owner:
            sent.setdefault(owner, Counter())[seen["name"].decode().upper()] += 1
    return sent


def _owners(found: Fleet) -> dict[str, str]:
    """Address -> name of the connections that have one: those of workers."""
    clients = found.server.client.client_list()
    return {one["addr"]: one["name"] for one in clients if one["name"]}


async def _monitor(port: int, seconds: float) -> list[bytes]:
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    writer.write(b"MONITOR\r\n")
    lines: list[bytes] = []
    try:
        async with asyncio.timeout(seconds):
            while line := await reader.readline():
                lines.append(line)
    except TimeoutError:
        return lines
    finally:
        writer.close()
    raise RuntimeError("the server closed the connection that watched it")


IDLE = Measurement(
    "idle",
    (
        Row("other", "commands of an idle worker", "/s", "under 3"),
        Row("sweep", "commands that leading the sweep adds", "/s", "about 64"),
        Row("cpu", "CPU of an idle worker, of one core", "%"),
        Row("sweep_cpu", "CPU that leading the sweep adds", "%"),
    ),
    _run,
)

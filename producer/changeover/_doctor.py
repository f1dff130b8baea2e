"""Look at a server and at the fleet on it. Reads only: nothing is created, changed or repaired."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Final

from redis.exceptions import ResponseError

from changeover._deep import Progress, look_deep
from changeover._fleet_health import config_findings, fleet_findings, judged
from changeover._partition_look import Command, PartitionLook
from changeover._report import Report, report_of
from changeover_shared._errors import ServerUnfit
from changeover_shared._server.check import Finding
from changeover_shared._server.diagnosis import CONFIG_NAMES, server_findings
from changeover_shared._settings import Settings
from changeover_shared._store import decode
from changeover_shared._store.executor import Executor
from changeover_shared._store.keys import Keys, PartitionKeys
from changeover_shared._units import milliseconds

AT_ONCE: Final = 16
"""How many partitions are read in one pipeline."""


async def examine(
    executor: Executor, settings: Settings, *, deep: bool, told: Progress | None
) -> Report:
    """Say what is wrong with a server and a fleet, and what to do. Raises `StoreUnavailable`."""
    now_ms, skew_ms = await _clock(executor)
    info, config = await _info(executor), await _config(executor)
    found: list[Finding] = [*server_findings(info, config, settings, skew_ms=skew_ms)]
    stored = await executor.command("GET", Keys(settings.prefix, settings.partitions).config)
    fleet: dict[str, Any] | None = json.loads(stored) if stored else None
    found += config_findings(fleet, settings)
    if fleet is None:
        return report_of(found, deep=deep)
    keys = Keys(settings.prefix, int(fleet["partitions"]))
    registry = decode.workers(await executor.command("HGETALL", keys.workers))
    workers = judged(registry, now_ms, settings)
    looks: list[PartitionLook] = []
    for start in range(0, keys.partitions, AT_ONCE):
        some = keys.all[start : start + AT_ONCE]
        looks += await _look(executor, some, now_ms, 10 * milliseconds(settings.lease))
    found += fleet_findings(fleet, looks, workers, settings, now_ms)
    if deep:
        found += await look_deep(executor, keys, sum(look.sessions for look in looks), told)
    return report_of(found, deep=deep)


async def _clock(executor: Executor) -> tuple[int, int]:
    """The server's time, and how far this machine's is ahead of it."""
    before = time.time()
    seconds, micros = await executor.command("TIME")
    now_ms = int(seconds) * 1000 + int(micros) // 1000
    return now_ms, round((before + time.time()) * 500) - now_ms


async def _info(executor: Executor) -> dict[str, str]:
    text = await _if_permitted(executor, "INFO")
    lines = (line.partition(":") for line in (text or b"").decode().splitlines())
    return {name: value for name, colon, value in lines if colon}


async def _config(executor: Executor) -> dict[str, str]:
    flat = await _if_permitted(executor, "CONFIG", "GET", *CONFIG_NAMES)
    return {name.decode(): value.decode() for name, value in decode.pairs(flat or ())}


async def _if_permitted(executor: Executor, *args: str) -> Any:
    """The answer, or None where the server does not have the command or forbids it."""
    try:
        return await executor.command(*args)
    except (ServerUnfit, ResponseError):
        return None


async def _look(
    executor: Executor, some: Sequence[PartitionKeys], now_ms: int, longest_ms: int
) -> list[PartitionLook]:
    """Read the indexes of several partitions in three pipelines."""
    looks = [PartitionLook(at) for at in some]
    for look, values in await _answers(executor, looks, lambda o: o.counting(now_ms, longest_ms)):
        look.counted(values)
    for look, values in await _answers(executor, looks, PartitionLook.indexing):
        look.indexed(values)
    for look, values in await _answers(executor, looks, PartitionLook.heads):
        look.headed(values)
    return looks


async def _answers(
    executor: Executor,
    looks: Sequence[PartitionLook],
    asking: Callable[[PartitionLook], list[Command]],
) -> list[tuple[PartitionLook, list[Any]]]:
    """What each partition's commands answered, from one pipeline."""
    asked = [asking(look) for look in looks]
    values = await executor.commands([command for commands in asked for command in commands])
    found = iter(values)
    return [
        (look, list(islice(found, len(commands))))
        for look, commands in zip(looks, asked, strict=True)
    ]

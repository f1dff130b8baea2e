# Written by tools/generate_sync.py from _doctor.py: change that file instead.
"""Look at a server and at the fleet on it. Reads only: nothing is created, changed or repaired."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from redis.exceptions import ResponseError

from changeover._fleet_health import config_findings, fleet_findings, judged
from changeover._partition_look import Command, PartitionLook
from changeover._report import Report, report_of
from changeover._sync_deep import Progress, look_deep
from changeover._sync_topology import look_around
from changeover_shared._errors import ServerUnfit, StoreUnavailable
from changeover_shared._server.check import REPLICA, Finding
from changeover_shared._server.diagnosis import CONFIG_NAMES, server_findings
from changeover_shared._server.url import Target
from changeover_shared._settings import Settings
from changeover_shared._store import decode
from changeover_shared._store.keys import Keys, PartitionKeys
from changeover_shared._store.replication import facts_in
from changeover_shared._store.sync_executor import SyncExecutor
from changeover_shared._units import milliseconds

AT_ONCE: Final = 16
"""How many partitions are read in one pipeline."""


def examine(
    executor: SyncExecutor, target: Target, settings: Settings, *, deep: bool, told: Progress | None
) -> Report:
    """Say what is wrong with the servers and the fleet of a target, and what to do.

    Raises `StoreUnavailable`.
    """
    try:
        infos = executor.on_every_primary("INFO")
    except StoreUnavailable as error:
        if not error.reason.startswith("READONLY"):
            raise StoreUnavailable(reason=error.reason, where=executor.where) from error
        return report_of([REPLICA], deep=deep)
    found = _servers(executor, infos, settings)
    found += look_around(executor, target)
    stored = executor.command("GET", Keys(settings.prefix, settings.partitions).config)
    fleet: dict[str, Any] | None = json.loads(stored) if stored else None
    found += config_findings(fleet, settings)
    if fleet is None:
        return report_of(found, deep=deep)
    keys = Keys(settings.prefix, int(fleet["partitions"]))
    now_ms = executor.clock.now_ms()
    registry = decode.workers(executor.command("HGETALL", keys.workers))
    workers = judged(registry, now_ms, settings)
    looks: list[PartitionLook] = []
    for start in range(0, keys.partitions, AT_ONCE):
        some = keys.all[start : start + AT_ONCE]
        looks += _look(executor, some, now_ms, 10 * milliseconds(settings.lease))
    found += fleet_findings(fleet, looks, workers, settings, now_ms)
    if deep:
        found += look_deep(executor, keys, sum(look.sessions for look in looks), told)
    return report_of(found, deep=deep)


def _servers(
    executor: SyncExecutor, infos: Mapping[str, bytes], settings: Settings
) -> list[Finding]:
    """What is to be said of every primary; of several, with its name."""
    configs = _if_permitted(executor, "CONFIG", "GET", *CONFIG_NAMES)
    skews = _skews(executor)
    found: list[Finding] = []
    for name, info in infos.items():
        flat = configs.get(name, ())
        config = {one.decode(): value.decode() for one, value in decode.pairs(flat)}
        mine = server_findings(facts_in(info), config, settings, skew_ms=skews[name])
        lead = f"{name} " if len(infos) > 1 else ""
        found += [one.model_copy(update={"text": lead + one.text}) for one in mine]
    return found


def _skews(executor: SyncExecutor) -> dict[str, int]:
    """How far this machine's clock is ahead of each server's, in milliseconds."""
    before = time.time()
    times = executor.on_every_primary("TIME")
    mine_ms = round((before + time.time()) * 500)
    found: dict[str, int] = {}
    for name, (seconds, micros) in times.items():
        now_ms = int(seconds) * 1000 + int(micros) // 1000
        executor.clock.saw(now_ms)
        found[name] = mine_ms - now_ms
    return found


def _if_permitted(executor: SyncExecutor, *args: str) -> dict[str, Any]:
    """The answer of every primary; none where a server has no such command or forbids it."""
    try:
        return executor.on_every_primary(*args)
    except (ServerUnfit, ResponseError):
        return {}


def _look(
    executor: SyncExecutor, some: Sequence[PartitionKeys], now_ms: int, longest_ms: int
) -> list[PartitionLook]:
    """Read the indexes of several partitions in three pipelines."""
    looks = [PartitionLook(at) for at in some]
    for look, values in _answers(executor, looks, lambda o: o.counting(now_ms, longest_ms)):
        look.counted(values)
    for look, values in _answers(executor, looks, PartitionLook.indexing):
        look.indexed(values)
    for look, values in _answers(executor, looks, PartitionLook.heads):
        look.headed(values)
    return looks


def _answers(
    executor: SyncExecutor,
    looks: Sequence[PartitionLook],
    asking: Callable[[PartitionLook], list[Command]],
) -> list[tuple[PartitionLook, list[Any]]]:
    """What each partition's commands answered, from one pipeline."""
    asked = [asking(look) for look in looks]
    values = executor.commands([command for commands in asked for command in commands])
    found = iter(values)
    return [
        (look, list(islice(found, len(commands))))
        for look, commands in zip(looks, asked, strict=True)
    ]

# Written by tools/generate_sync.py from _doctor.py: change that file instead.
"""Look at a server and at the fleet on it. Reads only: nothing is created, changed or repaired."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from changeover._fleet_config import config_findings
from changeover._fleet_health import fleet_findings, judged, overdue_schedules
from changeover._partition_look import Command, PartitionLook
from changeover._report import Report, report_of
from changeover._sync_deep import Progress, look_deep
from changeover._sync_topology import look_around
from changeover_shared._errors import StoreUnavailable
from changeover_shared._server.check import REPLICA, Finding
from changeover_shared._server.diagnosis import CONFIG_NAMES, server_findings
from changeover_shared._server.url import Target
from changeover_shared._settings import Settings
from changeover_shared._store import decode
from changeover_shared._store.clock import time_ms
from changeover_shared._store.keys import Keys, PartitionKeys, ScheduleKeys
from changeover_shared._store.replication import facts_in
from changeover_shared._store.sync_executor import SyncExecutor
from changeover_shared._store.sync_schedules import LONGEST_PAUSE_MS, READ_AT_ONCE, due_in
from changeover_shared._units import milliseconds

OVERDUE_MS: Final = 120_000
"""A running fleet serves a schedule within seconds."""
AT_ONCE: Final = 16
"""How many partitions are read in one pipeline."""


def examine(
    executor: SyncExecutor, target: Target, settings: Settings, *, deep: bool, told: Progress | None
) -> Report:
    """Say what is wrong with the servers and the fleet of a target, and what to do.

    Raises `StoreUnavailable`.
    """
    try:
        answers = executor.on_each_primary("INFO")
        lost = {name: one for name, one in answers.items() if isinstance(one, Exception)}
        infos = {name: info for name, info in answers.items() if name not in lost}
        if not infos:
            raise next(iter(lost.values()))
    except StoreUnavailable as error:
        if not error.reason.startswith("READONLY"):
            raise StoreUnavailable(reason=error.reason, where=executor.where) from error
        return report_of([REPLICA], deep=deep)
    found = _servers(executor, infos, settings)
    found += [_silent(name, error) for name, error in lost.items()]
    found += look_around(executor, target)
    if any(one.code in ("redis_silent", "cluster_down") for one in found):
        # What is on the others is no fleet that could be judged.
        return report_of(found, deep=deep)
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
    found += overdue_schedules(_overdue(executor, keys.schedules, now_ms), workers)
    if deep:
        found += look_deep(executor, keys, sum(look.sessions for look in looks), told)
    return report_of(found, deep=deep)


def _silent(name: str, error: Exception) -> Finding:
    reason = error.reason if isinstance(error, StoreUnavailable) else str(error)
    return Finding(
        level="fail",
        code="redis_silent",
        text=f"{name} does not answer: {reason}; what lies there is not served, and the fleet was "
        "not looked at",
        remedy="start it again, or have its replica promoted (CLUSTER FAILOVER TAKEOVER)",
    )


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
        mine = server_findings(facts_in(info), config, settings, skew_ms=skews.get(name, 0))
        lead = f"{name} " if len(infos) > 1 else ""
        found += [one.model_copy(update={"text": lead + one.text}) for one in mine]
    return found


def _overdue(executor: SyncExecutor, keys: ScheduleKeys, now_ms: int) -> list[str]:
    """The schedules that should have been served long ago, also those that are tried again."""
    within = (0, now_ms + LONGEST_PAUSE_MS, "BYSCORE")
    names = [one.decode() for one in executor.command("ZRANGE", keys.due, *within)]
    overdue: list[str] = []
    for start in range(0, len(names), READ_AT_ONCE):
        some = names[start : start + READ_AT_ONCE]
        values = executor.command("HMGET", keys.by_name, *some)
        for name, value in zip(some, values, strict=True):
            if value is not None and due_in(value) < now_ms - OVERDUE_MS:
                overdue.append(name)
    return overdue


def _skews(executor: SyncExecutor) -> dict[str, int]:
    """How far this machine's clock is ahead of each server's, in milliseconds."""
    before = time.time()
    times = executor.on_each_primary("TIME")
    mine_ms = round((before + time.time()) * 500)
    found: dict[str, int] = {}
    for name, answer in times.items():
        if isinstance(answer, Exception):
            continue
        now_ms = time_ms(answer)
        executor.clock.saw(now_ms)
        found[name] = mine_ms - now_ms
    return found


def _if_permitted(executor: SyncExecutor, *args: str) -> dict[str, Any]:
    """The answers of the primaries; none of one that has no such command or forbids it."""
    answers = executor.on_each_primary(*args)
    return {name: one for name, one in answers.items() if not isinstance(one, Exception)}


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

"""What a look at a fleet's indexes and registry comes to: facts in, findings out. No I/O here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from changeover._partition_look import PartitionLook
from changeover._paused import paused_text
from changeover_shared._results import WorkerInfo
from changeover_shared._server.check import Finding
from changeover_shared._settings import Settings
from changeover_shared._store.keys import queue_of
from changeover_shared._store.records import EVERYBODY
from changeover_shared._units import milliseconds, show_duration
from changeover_shared._words import FORMAT

NAMED: Final = 3
"""How many examples a finding names."""


def judged(
    workers: Sequence[WorkerInfo], now_ms: int, settings: Settings
) -> tuple[WorkerInfo, ...]:
    """The workers by name; `silent` once one has missed its renewals."""
    late_ms = 2 * milliseconds(settings.renew)
    seen = [
        one if now_ms - one.renewed_at_ms <= late_ms else one.model_copy(update={"state": "silent"})
        for one in workers
    ]
    return tuple(sorted(seen, key=lambda one: (one.worker, one.started_at_ms)))


def fleet_findings(
    config: Mapping[str, Any],
    looks: Sequence[PartitionLook],
    workers: Sequence[WorkerInfo],
    settings: Settings,
    now_ms: int,
) -> Iterator[Finding]:
    """The fleet as it stands. `workers` whose registration is old are silent ones."""
    yield _summary(config, looks, workers, settings)
    yield from _universe(config, looks, now_ms)
    yield from _full(looks, now_ms)
    yield from _silent(workers, settings, now_ms)
    yield from _blind(workers)
    yield from _paused(looks, now_ms)
    yield from _unserved(looks, workers)
    yield from _behind(looks, workers, now_ms)
    yield from _quarantined(looks)
    yield from _unsound(looks)


def overdue_schedules(names: Sequence[str], workers: Sequence[WorkerInfo]) -> Iterator[Finding]:
    """What is to be said of schedules that should have been served minutes ago."""
    if names:
        alive = any(worker.state != "silent" for worker in workers)
        look = "look at the workers' logs for schedule_failed"
        yield Finding(
            level="warn" if alive else "fail",
            code="schedules_overdue",
            text=f"{many(len(names), 'schedule')} overdue by minutes: {_named(names)}",
            remedy=look if alive else "changeover worker APP",
        )


def _summary(
    config: Mapping[str, Any],
    looks: Sequence[PartitionLook],
    workers: Sequence[WorkerInfo],
    settings: Settings,
) -> Finding:
    running = sum(worker.state == "running" for worker in workers)
    parts = (
        f"fleet {settings.prefix}",
        f"{config['partitions']} partitions",
        f"layout {config['layout']}",
        many(sum(look.sessions for look in looks), "session"),
        f"{sum(sum(look.ready.values()) for look in looks)} ready",
        f"{running} of {len(workers)} workers running",
    )
    return Finding(level="ok", code="fleet", text=" · ".join(parts))


def _universe(
    config: Mapping[str, Any], looks: Sequence[PartitionLook], now_ms: int
) -> Iterator[Finding]:
    made = (str(config["partitions"]), str(config["layout"]))
    for look in looks:
        if look.meta and (look.meta.get("P", ""), look.meta.get("layout", "")) != made:
            yield Finding(
                level="fail",
                code="partition_mismatch",
                text=f"partition {look.at.partition} was made for {look.meta.get('P')} partitions, "
                f"layout {look.meta.get('layout')}, the fleet has {made[0]}, layout {made[1]}: "
                "what is sent there is refused",
                remedy="restore the fleet's config from a backup, or use another CHANGEOVER_PREFIX",
            )
    pressed = [look for look in looks if look.refusing_until_ms > now_ms]
    if pressed:
        yield Finding(
            level="fail",
            code="messages_refused",
            text=f"{len(pressed)} of {len(looks)} partitions refuse messages: memory is short",
            remedy="changeover purge --closed-for 30d, or CONFIG SET maxmemory <more>",
        )


def _full(looks: Sequence[PartitionLook], now_ms: int) -> Iterator[Finding]:
    """Whose messages some partition refuses because too many wait, each with the newest number."""
    found = [(look.full_until_ms, one) for look in looks for one in look.full]
    newest = {one.whose: one for until_ms, one in sorted(found) if until_ms > now_ms}
    for whose, crowd in sorted(newest.items()):
        of = "the fleet" if whose == EVERYBODY else f"tenant {whose}"
        setting = "FLEET" if whose == EVERYBODY else "TENANT"
        yield Finding(
            level="warn",
            code="inbox_full",
            text=f"{many(crowd.depth, 'submission')} of {of} wait and {crowd.limit} may: its "
            "messages are refused",
            remedy=f"start more workers, or raise CHANGEOVER_{setting}_INBOX of all of them",
        )


def _silent(workers: Sequence[WorkerInfo], settings: Settings, now_ms: int) -> Iterator[Finding]:
    for worker in workers:
        if worker.state == "silent":
            since = _span(now_ms - worker.renewed_at_ms)
            lease = show_duration(settings.lease)
            yield Finding(
                level="warn",
                code="worker_silent",
                text=f"worker {worker.worker} has not been heard of for {since}: what it held is "
                f"taken over {lease} after its last renewal",
                remedy=f"start it again, or if it is dead: changeover evict {worker.incarnation}",
            )


def _blind(workers: Sequence[WorkerInfo]) -> Iterator[Finding]:
    blind = [one.worker for one in workers if not one.sees_connections and one.state != "silent"]
    if blind:
        yield Finding(
            level="warn",
            code="deaths_unseen",
            text=f"{'worker' if len(blind) == 1 else 'workers'} {_named(blind)} cannot see which "
            "connections Redis has, or theirs have no names: the death of a worker without a "
            "supervisor is noticed when its leases end",
            remedy="permit CLIENT LIST (changeover acl worker), without a proxy in between",
        )


def _paused(looks: Sequence[PartitionLook], now_ms: int) -> Iterator[Finding]:
    for queue in sorted({queue for look in looks for queue in look.paused}):
        said = [look.paused[queue] for look in looks if queue in look.paused]
        where = "" if len(said) == len(looks) else f" in {len(said)} of {len(looks)} partitions"
        yield Finding(
            level="warn",
            code="queue_paused",
            text=f"queue {queue} is {paused_text(said[0], now_ms)}{where}",
            remedy=f"changeover resume {queue}",
        )


def _unserved(looks: Sequence[PartitionLook], workers: Sequence[WorkerInfo]) -> Iterator[Finding]:
    served = {queue for one in workers if one.state == "running" for queue in one.queues}
    waiting: Counter[str] = Counter()
    named: dict[str, str] = {}
    for look in looks:
        waiting.update(look.ready)
        for route in look.ready:
            for session in look.entries[look.at.ready(route)][:1]:
                named.setdefault(route, session)
    for route, count in sorted(waiting.items()):
        queue, written = queue_of(route), route.rpartition("@")[2]
        if not count:
            continue
        if written != str(FORMAT):
            yield Finding(
                level="fail",
                code="format_too_new",
                text=f"{many(count, 'session')} of queue {queue} {'is' if count == 1 else 'are'} "
                f"ready in format {written}, this release reads {FORMAT}",
                remedy="start workers of the newer release",
            )
        elif queue not in served:
            yield Finding(
                level="fail",
                code="no_worker_for_queue",
                text=f"{many(count, 'session')} of queue {queue} "
                f"{'waits' if count == 1 else 'wait'} and no worker serves it"
                + (f", for example {named[route]}" if route in named else ""),
                remedy=f"changeover worker APP -q {queue}",
            )


def _behind(
    looks: Sequence[PartitionLook], workers: Sequence[WorkerInfo], now_ms: int
) -> Iterator[Finding]:
    alive = any(worker.state != "silent" for worker in workers)
    remedy = "look at the workers' logs for redis_lost" if alive else "changeover worker APP"
    whose = "though workers run" if alive else "and no worker runs"
    expired = [look for look in looks if look.expired]
    if expired:
        count = sum(look.expired for look in expired)
        oldest = min(look.expired_ms for look in expired)
        since = "were evicted" if oldest == 0 else f"ran out {_span(now_ms - oldest)} ago"
        yield Finding(
            level="warn" if alive else "fail",
            code="leases_not_reaped",
            text=f"{many(count, 'lease')} {since} and nobody went on, {whose}",
            remedy=remedy,
        )
    overdue = [look for look in looks if look.overdue]
    if overdue:
        count = sum(look.overdue for look in overdue)
        since = _span(now_ms - min(look.overdue_ms for look in overdue))
        yield Finding(
            level="warn" if alive else "fail",
            code="timers_overdue",
            text=f"{many(count, 'session')} should have gone on, the first {since} ago, {whose}",
            remedy=remedy,
        )
    beyond = [session for look in looks for session in look.beyond]
    if beyond:
        yield Finding(
            level="warn",
            code="leases_too_long",
            text=f"{many(len(beyond), 'lease')} end later than any lease may ({_named(beyond)}): "
            "the server's clock has stepped back; a running worker cuts them",
            remedy="run a time service on the server",
        )


def _quarantined(looks: Sequence[PartitionLook]) -> Iterator[Finding]:
    stopped = [session for look in looks for session in look.stopped]
    if stopped:
        count = sum(look.quarantined for look in looks)
        yield Finding(
            level="warn",
            code="quarantined",
            text=f"{many(count, 'session')} in quarantine: {_named(stopped, count)}",
            remedy="changeover quarantine says why, changeover redrive lets them go on",
        )


def _unsound(looks: Sequence[PartitionLook]) -> Iterator[Finding]:
    twice = [session for look in looks for session in look.twice]
    if twice:
        yield Finding(
            level="fail",
            code="in_two_indexes",
            text=f"{many(len(twice), 'session')} in two indexes: {_named(twice)}",
            remedy="changeover doctor --deep, and report this",
        )
    headless = [entry for look in looks for entry in look.headless]
    for key, session in headless[:NAMED]:
        yield Finding(
            level="fail",
            code="entry_without_session",
            text=f"{key} names {session}, which does not exist",
            remedy=f"redis-cli ZREM '{key}' '{session}'",
        )


def _named(sessions: Sequence[str], count: int | None = None) -> str:
    more = (count or len(sessions)) - len(sessions[:NAMED])
    return ", ".join(sessions[:NAMED]) + (f" and {more} more" if more > 0 else "")


def many(count: int, what: str) -> str:
    """So many of something, in words."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _span(ms: int) -> str:
    return show_duration(timedelta(milliseconds=max(0, ms)))

"""A fleet at a glance: what was counted, put together. No I/O here."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from changeover._rates import Rates, rates_by_queue
from changeover_shared._items import Wire
from changeover_shared._results import Pause, WorkerInfo
from changeover_shared._store.keys import queue_of
from changeover_shared._store.records import Quiet, Rush


class ServerGlance(Wire):
    """A primary, as it says that it is."""

    name: str
    """Its address."""
    version: str = ""
    """`valkey 9.1.2`."""
    role: str = ""
    """`master`, or `slave` when a failover has overtaken this look."""
    used_bytes: int = 0
    limit_bytes: int = 0
    """0 when it has none."""
    ops_per_second: int = 0
    """Those inside scripts among them."""
    clients: int = 0
    replicas: int = 0
    error: str | None = None
    """Why it said nothing."""


class QueueGlance(Wire):
    """A queue that has workers, waiting sessions, or a pause."""

    queue: str
    state: Literal["open", "paused", "partly_paused"] = "open"
    ready: int = 0
    """Sessions that wait for a worker."""
    oldest_ms: int | None = None
    """How long the longest has waited of those that are next in their partitions: of all, where
    tenants and priorities do not change the order."""
    running: int = 0
    """Sessions that workers hold, as they said last."""
    workers: int = 0
    """Running workers that serve it."""
    turns_per_minute: float = 0.0
    claims_per_minute: float = 0.0
    takeovers_per_minute: float = 0.0
    paused: Pause | None = None


class Glance(Wire):
    """A fleet at one moment."""

    at_ms: int
    """The moment, on Redis's clock."""
    fleet: str
    """Its prefix."""
    sessions: int = 0
    """All of them, idle and closed ones too."""
    running: int = 0
    """Sessions that are held, as Redis knows."""
    ready: int = 0
    timers: int = 0
    """Sessions that go on at a time of their own: parked, scheduled, or at a limit."""
    quarantined: int = 0
    turns_per_minute: float = 0.0
    claims_per_minute: float = 0.0
    takeovers_per_minute: float = 0.0
    servers: tuple[ServerGlance, ...] = ()
    queues: tuple[QueueGlance, ...] = ()
    workers: tuple[WorkerInfo, ...] = ()


@dataclass
class Seen:
    """What was counted, now or a little earlier."""

    rush: Rush
    quiet: Quiet
    since: Mapping[str, int] = field(default_factory=dict)
    """Route -> since when the longest of those waits that are next."""


def glance_of(
    fleet: str,
    seen: Seen,
    workers: Sequence[WorkerInfo],
    servers: Mapping[str, Mapping[str, str] | Exception],
    now_ms: int,
) -> Glance:
    """The fleet as people read it; `workers` as they are judged."""
    rates = rates_by_queue(workers)
    total = Rates()
    for some in rates.values():
        total = total.plus(some)
    queues = _queues(seen, workers, rates, now_ms)
    return Glance(
        at_ms=now_ms,
        fleet=fleet,
        sessions=seen.quiet.sessions,
        running=seen.rush.running,
        ready=sum(one.ready for one in queues),
        timers=seen.quiet.timers,
        quarantined=seen.quiet.quarantined,
        **_per_minute(total),
        servers=tuple(_server(name, said) for name, said in sorted(servers.items())),
        queues=queues,
        workers=tuple(workers),
    )


def _queues(
    seen: Seen, workers: Sequence[WorkerInfo], rates: defaultdict[str, Rates], now_ms: int
) -> tuple[QueueGlance, ...]:
    ready: Counter[str] = Counter()
    since: dict[str, int] = {}
    for counted in (seen.rush.ready, seen.quiet.suspects):
        for route, count in counted.items():
            ready[queue_of(route)] += count
    for route, at_ms in seen.since.items():
        queue = queue_of(route)
        since[queue] = min(at_ms, since.get(queue, at_ms))
    running: Counter[str] = Counter()
    serving: Counter[str] = Counter()
    for worker in workers:
        serving.update(worker.queues if worker.state == "running" else ())
        for queue, done in worker.activity.items():
            running[queue] += done.sessions
    pauses = seen.quiet.pauses
    paused = {queue for where in pauses for queue in where}
    named = {queue for queue, count in (ready + running + serving).items() if count} | paused
    return tuple(
        QueueGlance(
            queue=queue,
            state=_state(queue, pauses),
            ready=ready[queue],
            oldest_ms=max(0, now_ms - since[queue]) if ready[queue] and queue in since else None,
            running=running[queue],
            workers=serving[queue],
            **_per_minute(rates[queue]),
            paused=next((where[queue] for where in pauses if queue in where), None),
        )
        for queue in sorted(named)
    )


def _state(
    queue: str, pauses: Sequence[Mapping[str, Pause]]
) -> Literal["open", "paused", "partly_paused"]:
    said = sum(queue in where for where in pauses)
    return "open" if not said else "paused" if said == len(pauses) else "partly_paused"


def _per_minute(rates: Rates) -> dict[str, float]:
    names = ("turns_per_minute", "claims_per_minute", "takeovers_per_minute")
    return {name: round(rate, 1) for name, rate in zip(names, rates, strict=True)}


def _server(name: str, said: Mapping[str, str] | Exception) -> ServerGlance:
    if isinstance(said, Exception):
        return ServerGlance(name=name, error=str(said) or type(said).__name__)
    make = said.get("server_name", "redis")
    return ServerGlance(
        name=name,
        version=f"{make} {said.get(f'{make}_version', said.get('redis_version', '?'))}",
        role=said.get("role", ""),
        used_bytes=_number(said, "used_memory") - _number(said, "mem_not_counted_for_evict"),
        limit_bytes=_number(said, "maxmemory"),
        ops_per_second=_number(said, "instantaneous_ops_per_sec"),
        clients=_number(said, "connected_clients"),
        replicas=_number(said, "connected_slaves"),
    )


def _number(said: Mapping[str, str], name: str) -> int:
    return int(said.get(name) or 0)

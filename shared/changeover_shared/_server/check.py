"""Whether a server keeps the promises that a fleet is built on: facts in, findings out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from changeover_shared._items import Wire
from changeover_shared._settings import Settings

OLDEST_REDIS = (7, 0)
FIRST_WITH_WAITAOF = (7, 2)
SKEW_SHOWN_FROM_MS = 5_000

Level = Literal["ok", "warn", "fail"]


class Finding(Wire):
    """One thing that was looked at, and what it came to."""

    level: Level
    """`fail`: accepted work may be lost or is not served; `warn`: people should know."""
    code: str
    """What was looked at, in one word for programs."""
    text: str
    """What is so, for people."""
    remedy: str | None = None
    """What to type, or else to do; None when all is well."""

    @property
    def said(self) -> str:
        """The text and the remedy on one line."""
        return self.text if self.remedy is None else f"{self.text}; {self.remedy}"


REPLICA: Final = Finding(
    level="fail",
    code="redis_replica",
    text="the server is a replica and takes no writes",
    remedy="use the URL of its primary",
)


@dataclass(frozen=True, slots=True)
class Fitness:
    """What speaks against a server."""

    fatal: tuple[Finding, ...] = ()
    """With one of these a process must not start: accepted work could be lost or not served."""
    warnings: tuple[Finding, ...] = ()
    """With these it may start, and people should know."""


class Facts:
    """INFO and CONFIG GET as one set of names, each written with `_`."""

    def __init__(self, info: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        self._known = {
            name.replace("-", "_"): str(value) for name, value in {**config, **info}.items()
        }

    def seen(self, name: str) -> bool:
        """Whether the server told it."""
        return name in self._known

    def text(self, name: str, default: str = "") -> str:
        """A fact as it was told."""
        return self._known.get(name, default)

    def number(self, name: str, default: int = 0) -> int:
        """A fact that is a whole number."""
        found = self._known.get(name, "")
        return int(found) if found.isdigit() else default

    @property
    def is_valkey(self) -> bool:
        """Every Valkey descends from Redis 7.2 and says so in redis_version."""
        return self.text("server_name") == "valkey" or self.seen("valkey_version")

    @property
    def version(self) -> tuple[int, ...]:
        """The first two numbers of the version, () for an unknown one."""
        parts = self.text("redis_version").split(".")[:2]
        return tuple(int(part) for part in parts) if all(p.isdigit() for p in parts) else ()

    @property
    def has_aof(self) -> bool:
        """Whether there is an append-only file."""
        return self.text("aof_enabled", "0") != "0"

    @property
    def can_confirm_fsync(self) -> bool:
        """Whether a write can be known to be on disk: WAITAOF, or every write is."""
        if not self.has_aof:
            return False
        waits = self.is_valkey or self.version >= FIRST_WITH_WAITAOF
        return waits or self.text("appendfsync") == "always"


def fitness(
    info: Mapping[str, Any],
    config: Mapping[str, Any],
    *,
    settings: Settings | None = None,
    skew_ms: int = 0,
) -> Fitness:
    """Judge a server by INFO and CONFIG GET, as redis-py reads them.

    Where CONFIG is not permitted, give an empty mapping: INFO alone answers what is fatal.
    `settings` say what the process wants of durability. `skew_ms` is this machine's clock minus
    the server's; only the server's ever counts.
    """
    found = tuple(_findings(Facts(info, config), settings, skew_ms))
    return Fitness(
        fatal=tuple(one for one in found if one.level == "fail"),
        warnings=tuple(one for one in found if one.level == "warn"),
    )


def _findings(facts: Facts, settings: Settings | None, skew_ms: int) -> Iterator[Finding]:
    yield from _version(facts)
    yield from _eviction(facts)
    yield from _role(facts)
    yield from _append_only_file(facts)
    if settings is not None:
        yield from _durability(facts, settings)
    yield from _clock(skew_ms)


def _version(facts: Facts) -> Iterator[Finding]:
    if not facts.is_valkey and facts.version < OLDEST_REDIS:
        version = facts.text("redis_version") or "of an unknown version"
        yield Finding(
            level="fail",
            code="redis_version",
            text=f"the server is Redis {version}",
            remedy="use Redis 7.0 or later, or Valkey",
        )


def _eviction(facts: Facts) -> Iterator[Finding]:
    policy = facts.text("maxmemory_policy", "noeviction")
    if policy == "noeviction":
        return
    limited = facts.number("maxmemory") > 0
    yield Finding(
        level="fail" if limited else "warn",
        code="redis_evicts",
        text=f"maxmemory-policy is {policy}: "
        + (
            "Redis may delete accepted work when memory runs out"
            if limited
            else "without maxmemory nothing is evicted yet"
        ),
        remedy="CONFIG SET maxmemory-policy noeviction",
    )


def _role(facts: Facts) -> Iterator[Finding]:
    if facts.text("role", "master") != "master":
        yield REPLICA


def _append_only_file(facts: Facts) -> Iterator[Finding]:
    if not facts.has_aof:
        yield Finding(
            level="warn",
            code="redis_no_aof",
            text="appendonly is off: a restart forgets what was accepted since the last snapshot",
            remedy="CONFIG SET appendonly yes",
        )
    elif facts.text("appendfsync", "everysec") == "no":
        yield Finding(
            level="warn",
            code="redis_no_fsync",
            text="appendfsync is no: a crash of its machine forgets up to half a minute",
            remedy="CONFIG SET appendfsync everysec",
        )


def _durability(facts: Facts, settings: Settings) -> Iterator[Finding]:
    wanted = settings.durability_replicas
    if settings.durability == "fsync" and not facts.can_confirm_fsync:
        yield Finding(
            level="fail",
            code="redis_no_waitaof",
            text='durability "fsync" can never be confirmed: it needs an append-only file, and '
            "WAITAOF (Redis 7.2, Valkey) or appendfsync always",
            remedy="CONFIG SET appendonly yes"
            if not facts.has_aof
            else "CONFIG SET appendfsync always",
        )
    replicas = facts.number("connected_slaves")
    if settings.durability == "replica" and replicas < wanted and facts.seen("connected_slaves"):
        whom = "nobody" if replicas == 0 else f"{wanted} replicas, {replicas} connected"
        yield Finding(
            level="warn",
            code="redis_no_replicas",
            text=f'durability "replica" would wait for {whom}',
            remedy="connect a replica (REPLICAOF), or set CHANGEOVER_DURABILITY_REPLICAS to how "
            "many there are",
        )
    if settings.durability == "replica" and replicas > wanted:
        yield Finding(
            level="warn",
            code="redis_replicas_unconfirmed",
            text=f"{replicas} replicas may be promoted and {wanted} must confirm: a failover to "
            "one that did not may forget what was acknowledged",
            remedy=f"set CHANGEOVER_DURABILITY_REPLICAS={replicas}",
        )


def _clock(skew_ms: int) -> Iterator[Finding]:
    if abs(skew_ms) < SKEW_SHOWN_FROM_MS:
        return
    side = "ahead of" if skew_ms > 0 else "behind"
    yield Finding(
        level="warn",
        code="clock_skew",
        text=f"this machine's clock is {abs(skew_ms) / 1000:g} s {side} the server's; ids minted "
        "here carry its time, beyond 10 minutes they are refused",
        remedy="run a time service on both",
    )

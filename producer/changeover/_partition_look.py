"""Which few reads tell how a partition stands, and how their answers are read. No I/O here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Final

from changeover_shared._results import Pause
from changeover_shared._store import decode
from changeover_shared._store.keys import PartitionKeys

LATE_MS: Final = 10_000
"""How long something may be due before a sweep that works would have seen it."""
OLDEST: Final = 20
"""How many entries of an index are named, oldest first."""

Command = tuple[str | int, ...]


@dataclass
class PartitionLook:
    """One partition's indexes, as a few reads found them."""

    at: PartitionKeys
    meta: dict[str, str] = field(default_factory=dict)
    refusing_until_ms: int = 0
    """While memory is short; 0 when it is not."""
    sessions: int = 0
    expired: int = 0
    """Leases that ran out longer than `LATE_MS` ago and that nobody has reaped."""
    expired_ms: int = 0
    """When the oldest of them ran out; 0 for one that was evicted."""
    beyond: tuple[str, ...] = ()
    """Sessions whose lease ends later than any lease may."""
    overdue: int = 0
    overdue_ms: int = 0
    quarantined: int = 0
    stopped: tuple[str, ...] = ()
    """The first of the quarantined ones."""
    paused: dict[str, Pause] = field(default_factory=dict)
    """Queue -> why nothing of it is granted here."""
    routes: tuple[str, ...] = ()
    ready: dict[str, int] = field(default_factory=dict)
    """Route -> how many sessions wait there."""
    entries: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Index -> the sessions that it names first."""
    twice: tuple[str, ...] = ()
    """Sessions that are in two indexes."""
    headless: tuple[tuple[str, str], ...] = ()
    """(index key, session) of entries whose session does not exist."""

    @property
    def indexes(self) -> tuple[str, ...]:
        """The keys that may name a session, at most one of them each."""
        ready = [key for one in self.routes for key in (self.at.ready(one), self.at.solo(one))]
        return (self.at.named("leases"), self.at.named("timers"), *ready)

    def counting(self, now_ms: int, longest_ms: int) -> list[Command]:
        """The first reads; `longest_ms` is how far ahead a lease may end."""
        leases, timers = self.at.named("leases"), self.at.named("timers")
        late, beyond = now_ms - LATE_MS, f"({now_ms + longest_ms}"
        return [
            ("HGETALL", self.at.named("meta")),
            ("ZCARD", self.at.named("sessions")),
            ("ZCOUNT", leases, "-inf", late),
            ("ZRANGE", leases, 0, 0, "WITHSCORES"),
            ("ZRANGE", leases, beyond, "+inf", "BYSCORE", "LIMIT", 0, OLDEST),
            ("ZCOUNT", timers, "-inf", late),
            ("ZRANGE", timers, 0, 0, "WITHSCORES"),
            ("ZCARD", self.at.named("quarantine")),
            ("ZRANGE", self.at.named("quarantine"), 0, OLDEST - 1),
            ("HKEYS", self.at.named("vt")),
        ]

    def counted(self, values: Sequence[Any]) -> None:
        """Read the answers to `counting`."""
        meta, sessions, expired, first, beyond, overdue, due, quarantined, stopped, vt = values
        told = {name.decode(): value.decode() for name, value in decode.pairs(meta)}
        self.meta = {name: told[name] for name in ("P", "layout") if name in told}
        self.refusing_until_ms = int(told.get("pressure", "0").rpartition("|")[2])
        self.full_until_ms, self.full = decode.full(told.get("full", "").encode())
        self.paused = decode.paused(meta)
        self.sessions = int(sessions)
        self.expired, self.overdue = int(expired), int(overdue)
        self.expired_ms = int(float(first[1])) if first else 0
        self.overdue_ms = int(float(due[1])) if due else 0
        self.beyond = _names(beyond)
        self.quarantined, self.stopped = int(quarantined), _names(stopped)
        self.routes = decode.routes(vt)

    def indexing(self) -> list[Command]:
        """The second reads: what each index holds, and what two of them hold."""
        pairs = combinations(self.indexes, 2)
        return [
            *(("ZCARD", key) for key in self.indexes),
            *(("ZRANGE", key, 0, OLDEST - 1) for key in self.indexes),
            *(("ZINTER", 2, one, other) for one, other in pairs),
        ]

    def indexed(self, values: Sequence[Any]) -> None:
        """Read the answers to `indexing`."""
        keys = self.indexes
        sizes, firsts, shared = (
            values[: len(keys)],
            values[len(keys) : 2 * len(keys)],
            values[2 * len(keys) :],
        )
        self.entries = {key: _names(found) for key, found in zip(keys, firsts, strict=True)}
        size_of = dict(zip(keys, map(int, sizes), strict=True))
        self.ready = {
            route: size_of[self.at.ready(route)] + size_of[self.at.solo(route)]
            for route in self.routes
        }
        self.twice = tuple(sorted({name for found in shared for name in _names(found)}))

    def heads(self) -> list[Command]:
        """The third reads: whether the sessions that the indexes name first exist."""
        return [
            ("EXISTS", self.at.session(name, "head"))
            for names in self.entries.values()
            for name in names
        ]

    def headed(self, values: Sequence[Any]) -> None:
        """Read the answers to `heads`."""
        named = [(key, name) for key, names in self.entries.items() for name in names]
        self.headless = tuple(
            entry for entry, exists in zip(named, values, strict=True) if not exists
        )


def _names(raw: Sequence[bytes]) -> tuple[str, ...]:
    return tuple(one.decode() for one in raw)

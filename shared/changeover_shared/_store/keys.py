"""Every Redis key. Nothing else in the code spells one.

A session and its partition share the hash tag `{<prefix>:<partition>}`, so each script touches
one slot. A `|` never stands in an identifier, nor do braces, so no name can forge a key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal
from urllib.parse import quote

from changeover_shared._identifiers import partition_of
from changeover_shared._words import FORMAT

PARTITION_NAMES: Final = (
    "meta",
    "leases",
    "owners",
    "stalls",
    "alerts",
    "timers",
    "vt",
    "waiting",
    "sessions",
    "quarantine",
    "graves",
    "outbox",
    "barrier",
)
"""What a partition has once, beside its ready sets."""
SCHEDULE_NAMES: Final = ("meta", "barrier", "by_name", "due")
"""What lies in the slot of the schedules: what every slot has, and an index of them."""
SESSION_NAMES: Final = (
    "head",
    "work",
    "inbox",
    "receipts",
    "settled",
    "checkpoint",
    "transcript",
    "journal",
    "turns",
)
"""What a session has, beside the rewritten prefix of its context."""

_OF_A_PARTITION = re.compile(
    rf"(?P<name>{'|'.join(PARTITION_NAMES)})"
    r"|ready:(?P<ready>[A-Za-z0-9._-]+@[0-9]+)(?P<solo>!solo)?"
    rf"|s:(?P<session>.+):(?:(?P<part>{'|'.join(SESSION_NAMES)})|context:(?P<epoch>[0-9]+))"
)

_INCARNATION = re.compile(r"[A-Za-z0-9._@-]+:[0-9a-f]{8}")
_OF_A_LIMIT = re.compile(
    r"(?:tenant|queue):[A-Za-z0-9._-]+"
    r"|model:[A-Za-z0-9._~%:/-]+(?:@[A-Za-z0-9._-]+)?(?:!(?:running|line|kept))?"
)

LIMIT_PARTS: Final = ("running", "line", "kept")
"""What a model's limit has beside its bucket."""

LimitKind = Literal["tenant", "queue"]
"""Of what at most so many sessions run at once."""


@dataclass(frozen=True, slots=True)
class Owner:
    """What a key belongs to: it lives and ends with that."""

    kind: Literal["fleet", "bell", "limit", "schedules", "partition", "ready", "session"]
    name: str
    """`config`, a route, `meta`, `head`, `context` ...: what the key is to its owner."""
    partition: int | None = None
    session_id: str = ""
    epoch: int = 0
    """Of a `context`: which rewritten prefix it is."""


def route_of(queue: str) -> str:
    """Where a session of `queue` waits: the queue with this build's format class."""
    return f"{queue}@{FORMAT}"


def queue_of(route: str) -> str:
    """The queue of a route."""
    return route.rpartition("@")[0]


@dataclass(frozen=True)
class PartitionKeys:
    """The keys of one partition."""

    prefix: str
    partition: int

    @cached_property
    def tag(self) -> str:
        """The hash tag with the colon after it."""
        return f"{{{self.prefix}:{self.partition}}}:"

    def named(self, name: str) -> str:
        """One of `PARTITION_NAMES`."""
        return self.tag + name

    def ready(self, route: str) -> str:
        """The sessions of a route that wait for a worker, in fair order."""
        return f"{self.tag}ready:{route}"

    def solo(self, route: str) -> str:
        """The same for suspects: claimed only by a process that holds nothing else."""
        return f"{self.tag}ready:{route}!solo"

    def session(self, session_id: str, name: str) -> str:
        """One of `SESSION_NAMES`, of a session."""
        return f"{self.tag}s:{session_id}:{name}"

    def context(self, session_id: str, epoch: int) -> str:
        """The rewritten prefix of a session's context."""
        return f"{self.tag}s:{session_id}:context:{epoch}"


class LimitKeys(PartitionKeys):
    """The slot of what is counted over all partitions; stands where a partition's keys stand."""

    @cached_property
    def tag(self) -> str:
        """The hash tag with the colon after it."""
        return f"{{{self.prefix}:limit}}:"

    def permits(self, kind: LimitKind, name: str) -> str:
        """The sessions of a tenant, or of a queue, that may run, by the end of their permits."""
        return f"{self.tag}{kind}:{name}"

    def model(self, name: str, tenant: str = "") -> dict[str, str]:
        """What is counted of the requests to a model, or of one tenant's to it. A model may have
        any name, so what no identifier has is written as in a URL."""
        whose = f"@{tenant}" if tenant else ""
        bucket = f"{self.tag}model:{quote(name, safe=':/')}{whose}"
        return {"bucket": bucket} | {part: f"{bucket}!{part}" for part in LIMIT_PARTS}


@dataclass(frozen=True)
class ScheduleKeys:
    """The keys of a fleet's schedules, all in one slot."""

    prefix: str

    @cached_property
    def tag(self) -> str:
        """The hash tag with the colon after it."""
        return f"{{{self.prefix}:schedules}}:"

    def named(self, name: str) -> str:
        """One of `SCHEDULE_NAMES`."""
        return self.tag + name

    @property
    def by_name(self) -> str:
        """Name -> version, time, session and what is done."""
        return self.named("by_name")

    @property
    def due(self) -> str:
        """Names by when to look at them."""
        return self.named("due")


Slot = PartitionKeys | ScheduleKeys
"""Keys that a script may be given together, with what guards them."""


@dataclass(frozen=True)
class Keys:
    """The keys of a fleet."""

    prefix: str
    partitions: int

    @cached_property
    def all(self) -> tuple[PartitionKeys, ...]:
        """Every partition's keys, by number."""
        return tuple(PartitionKeys(self.prefix, p) for p in range(self.partitions))

    def of(self, session_id: str) -> PartitionKeys:
        """The keys of the partition that holds a session."""
        return self.all[partition_of(session_id, self.partitions)]

    @cached_property
    def limits(self) -> LimitKeys:
        """The keys of what is counted over all partitions."""
        return LimitKeys(self.prefix, -1)

    def bell(self, route: str) -> str:
        """A route's bell: partitions that have work, by the time of the ring. A hint only."""
        return f"{{{self.prefix}:bell}}:{route}"

    @cached_property
    def schedules(self) -> ScheduleKeys:
        """The keys of the schedules."""
        return ScheduleKeys(self.prefix)

    @property
    def alarm(self) -> str:
        """Partitions with a control that waits for a holder, by the time of the ring. A hint only;
        beside the bells, and no route is called so."""
        return self.bell("!alarm")

    @property
    def config(self) -> str:
        """What the fleet was created with, as JSON."""
        return f"{self.prefix}:config"

    @property
    def secret(self) -> str:
        """What the fleet keys its digests with, encrypted; there once the fleet encrypts."""
        return f"{self.prefix}:secret"

    @property
    def workers(self) -> str:
        """Incarnation -> JSON of what it says of itself. For people, never an authority."""
        return f"{self.prefix}:workers"

    @property
    def agents(self) -> str:
        """Agent -> JSON of what producers should know of it: its default policy."""
        return f"{self.prefix}:agents"

    @property
    def sweep(self) -> str:
        """The incarnation that sweeps, with a TTL."""
        return f"{self.prefix}:sweep"

    @property
    def deputy(self) -> str:
        """The incarnation that looks after the one that sweeps, with a TTL; in the same slot."""
        return f"{{{self.sweep}}}:deputy"

    def order(self, incarnation: str) -> str:
        """What an operator wants of an incarnation, or what became of it, as JSON, with a TTL."""
        return f"{self.prefix}:order:{incarnation}"

    def call(self, incarnation: str) -> str:
        """Rung when there is an order for an incarnation, which waits for it beside its bells."""
        return self.bell(f"!call:{incarnation}")

    @property
    def census(self) -> str:
        """How the fleet stands, as JSON, with a TTL: what its leader has counted."""
        return f"{self.prefix}:census"

    @cached_property
    def patterns(self) -> tuple[str, str]:
        """Two glob patterns that match every key of this fleet, and none of another one's."""
        return f"{self.prefix}:*", f"{{{self.prefix}:*"

    @cached_property
    def _of_the_fleet(self) -> tuple[str, ...]:
        return (
            self.config,
            self.secret,
            self.workers,
            self.agents,
            self.sweep,
            self.census,
        )

    def owner_of(self, key: str) -> Owner | None:
        """What a key belongs to; None for one that nothing here writes or ever removes."""
        if key in self._of_the_fleet:
            return Owner("fleet", key.rpartition(":")[2])
        if key == self.deputy:
            return Owner("fleet", "deputy")
        ordered = key.removeprefix(f"{self.prefix}:order:")
        if ordered != key:
            return Owner("fleet", "order") if _INCARNATION.fullmatch(ordered) else None
        tag, found, rest = key.partition("}:")
        whose = tag.removeprefix(f"{{{self.prefix}:")
        if not found or whose == tag:
            return None
        if whose == "bell":
            return Owner("bell", rest)
        if whose == "schedules":
            return Owner("schedules", rest) if rest in SCHEDULE_NAMES else None
        if whose == "limit":
            return Owner("limit", rest) if _OF_A_LIMIT.fullmatch(rest) else None
        if not (whose.isascii() and whose.isdigit()) or str(int(whose)) != whose:
            return None
        number = int(whose)
        return self._owner_in(number, rest) if number < self.partitions else None

    def _owner_in(self, partition: int, rest: str) -> Owner | None:
        match = _OF_A_PARTITION.fullmatch(rest)
        if match is None:
            return None
        if match["name"]:
            return Owner("partition", match["name"], partition)
        if match["ready"]:
            return Owner("ready", match["ready"] + (match["solo"] or ""), partition)
        session_id = match["session"]
        if partition_of(session_id, self.partitions) != partition:
            return None
        part, epoch = match["part"] or "context", int(match["epoch"] or 0)
        return Owner("session", part, partition, session_id, epoch)

"""Every Redis key. Nothing else in the code spells one.

A session and its partition share the hash tag `{<prefix>:<partition>}`, so each script touches
one slot. A `|` never stands in an identifier, nor do braces, so no name can forge a key.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from changeover_shared._identifiers import partition_of
from changeover_shared._words import FORMAT


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
        """`meta`, `leases`, `owners`, `stalls`, `alerts`, `timers`, `vt`, `sessions`,
        `quarantine`, `graves` or `outbox`."""
        return self.tag + name

    def ready(self, route: str) -> str:
        """The sessions of a route that wait for a worker, in fair order."""
        return f"{self.tag}ready:{route}"

    def solo(self, route: str) -> str:
        """The same for suspects: claimed only by a process that holds nothing else."""
        return f"{self.tag}ready:{route}!solo"

    def session(self, session_id: str, name: str) -> str:
        """`head`, `work`, `inbox`, `receipts`, `settled`, `checkpoint`, `transcript`, `journal`
        or `turns` of a session."""
        return f"{self.tag}s:{session_id}:{name}"

    def context(self, session_id: str, epoch: int) -> str:
        """The rewritten prefix of a session's context."""
        return f"{self.tag}s:{session_id}:context:{epoch}"


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

    def bell(self, route: str) -> str:
        """A route's bell: partitions that have work, by the time of the ring. A hint only."""
        return f"{{{self.prefix}:bell}}:{route}"

    @property
    def config(self) -> str:
        """What the fleet was created with, as JSON."""
        return f"{self.prefix}:config"

    @property
    def workers(self) -> str:
        """Incarnation -> JSON of what it says of itself. For people, never an authority."""
        return f"{self.prefix}:workers"

    @property
    def sweep(self) -> str:
        """The incarnation that sweeps, with a TTL."""
        return f"{self.prefix}:sweep"

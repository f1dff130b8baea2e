# Written by tools/generate_sync.py from eviction.py: change that file instead.
"""Declaring an incarnation dead: its leases end now, and its sessions are offered at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from changeover_shared._store import decode, requests
from changeover_shared._store.keys import PartitionKeys
from changeover_shared._store.limits import longest_lease_ms
from changeover_shared._store.requests import Request
from changeover_shared._store.sync_fleet import SyncFleet

T = TypeVar("T")

EVICTED_AT_ONCE = 1000
PLACED_AT_ONCE = 100


class SyncEviction:
    """Ends what an incarnation holds. Every call may be repeated, and is harmless if it lives: its
    next write is refused. Raises `StoreUnavailable` when it may not have reached everything."""

    def __init__(self, fleet: SyncFleet) -> None:
        self._fleet = fleet

    def evict(self, incarnation: str, *, why: str = "") -> int:
        """End all leases of one incarnation now; how many there were."""
        return sum([len(ids) for _, ids in self._evicted(incarnation, why)])

    def bury(self, incarnation: str, *, why: str = "") -> int:
        """The same, and offer its sessions to others and take it out of the registry.

        `why` is what is known of its death: people read it if a session of it is quarantined.
        """
        held = self._evicted(incarnation, why)
        self._fleet.ring(self._placed(held))
        self._fleet.executor.command("HDEL", self._fleet.keys.workers, incarnation)
        return sum(len(ids) for _, ids in held)

    def reap(self, partition: int, ids: Sequence[str]) -> tuple[str, ...]:
        """Place sessions whose lease or due time has passed; the routes that became ready."""
        if not ids:
            return ()
        placed = self._placed([(self._fleet.keys.all[partition], ids)])
        return tuple(route for route, _ in placed)

    def _placed(
        self, found: Sequence[tuple[PartitionKeys, Sequence[str]]]
    ) -> list[tuple[str, int]]:
        """Place sessions, given by partition, all in two pipelines; the routes that became ready,
        each with where."""
        batches = [(at, some) for at, ids in found for some in _batches(ids, PLACED_AT_ONCE)]
        heads = [("HGET", at.session(one, "head"), "route") for at, some in batches for one in some]
        routes = iter(self._fleet.executor.commands(heads))
        longest_ms = longest_lease_ms(self._fleet.settings)
        asked: list[Request] = []
        routed: list[tuple[int, list[str]]] = []
        for at, some in batches:
            mine = [route.decode() if route else "" for _, route in zip(some, routes, strict=False)]
            named = list(zip(some, mine, strict=True))
            asked.append(requests.reap(at, named, max_ttl_ms=longest_ms))
            routed.append((at.partition, mine))
        ready: set[tuple[str, int]] = set()
        for (partition, mine), reply in zip(routed, self._fleet.call_all(asked), strict=True):
            if isinstance(reply, Exception):
                raise reply
            ready |= {
                (route, partition)
                for route, (word, status) in zip(mine, reply[1], strict=True)
                if word == b"PLACED" and status == b"ready"
            }
        return sorted(ready)

    def _evicted(self, incarnation: str, why: str) -> list[tuple[PartitionKeys, list[str]]]:
        """End its leases; the sessions that it held, by partition."""
        keys = self._fleet.keys
        owners = [("HGETALL", at.named("owners")) for at in keys.all]
        found = self._fleet.executor.commands(owners)
        held = [(at, _held_by(incarnation, flat)) for at, flat in zip(keys.all, found, strict=True)]
        asked: list[Request] = [
            requests.evict(at, some, why=why)
            for at, leases in held
            for some in _batches(leases, EVICTED_AT_ONCE)
        ]
        for reply in self._fleet.call_all(asked):
            if isinstance(reply, Exception):
                raise reply
        return [(at, [one for one, _ in leases]) for at, leases in held if leases]


def _held_by(incarnation: str, flat: Sequence[Any]) -> list[tuple[str, str]]:
    """What of a partition's `owners` is an incarnation's: sessions and lease strings."""
    return [
        (session.decode(), token.decode())
        for session, token in decode.pairs(flat)
        if token.decode().split("|")[1] == incarnation
    ]


def _batches(found: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(found), size):
        yield found[start : start + size]

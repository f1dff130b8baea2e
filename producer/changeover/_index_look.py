"""Which indexes a partition has, and when an entry of one is wrong. No I/O here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from changeover_shared._store.keys import PartitionKeys

Commands = tuple[tuple[str, ...], ...]
Asking = Callable[[str], Commands]
"""Makes the commands that concern one entry."""


@dataclass(frozen=True, slots=True)
class Index:
    """A key that names sessions."""

    at: PartitionKeys
    key: str
    scan: Literal["ZSCAN", "HSCAN"] = "ZSCAN"
    route: str = ""
    """Of a ready set: the route of every session in it."""
    held: bool = False
    """It names only sessions that have a holder."""

    @property
    def remove(self) -> str:
        """The command that takes an entry out."""
        return "ZREM" if self.scan == "ZSCAN" else "HDEL"

    def asking_first(self, member: str) -> Commands:
        """What tells that an entry is right, nearly always."""
        head = ("HMGET", self.at.session(member, "head"), "status", "route")
        return (head, ("HGET", self.at.named("owners"), member)) if self.held else (head,)

    def seems_wrong(self, values: Sequence[Any]) -> bool:
        """Whether the entry must be looked at again, from the answers to `asking_first`."""
        status, route = values[0]
        if status is None or (self.held and values[1] is None):
            return True
        return bool(self.route) and (route or b"").decode() != self.route

    def asking(self, member: str) -> Commands:
        """What tells whether an entry is right: the session before and after the entry itself,
        for both may go in one moment, or come."""
        head = self.at.session(member, "head")
        there = "ZSCORE" if self.scan == "ZSCAN" else "HGET"
        route, owner = ("HGET", head, "route"), ("HGET", self.at.named("owners"), member)
        return (("EXISTS", head), route, owner, (there, self.key, member), route, owner,
                ("EXISTS", head))  # fmt: skip

    def wrong(self, values: Sequence[Any]) -> str:
        """What is wrong with the entry, from the answers to `asking`; '' when it is right."""
        exists, route, owner, there, route_after, owner_after, exists_after = values
        if there is None:
            return ""
        if not exists and not exists_after:
            return "which does not exist"
        if route is None or route_after is None:
            return ""
        if self.route and self.route not in (route.decode(), route_after.decode()):
            return f"which waits in {route_after.decode()}"
        if self.held and owner is None and owner_after is None:
            return "which nobody holds"
        return ""


def indexes_of(at: PartitionKeys, routes: Sequence[str]) -> Iterator[Index]:
    """Every index of a partition."""
    for name in ("timers", "quarantine", "sessions", "graves"):
        yield Index(at, at.named(name))
    yield Index(at, at.named("leases"), held=True)
    for name in ("owners", "stalls", "alerts"):
        yield Index(at, at.named(name), "HSCAN", held=name != "owners")
    for route in routes:
        yield Index(at, at.ready(route), route=route)
        yield Index(at, at.solo(route), route=route)

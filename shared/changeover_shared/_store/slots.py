"""Where a key lives in a Cluster. Pure: replies of the servers in, addresses out."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redis.crc import key_slot

from changeover_shared._store.scripts import Value

Address = tuple[str, int]
"""Host and port."""

_KEYLESS = frozenset(
    ("ACL", "CLIENT", "CLUSTER", "CONFIG", "FLUSHALL", "INFO", "KEYS", "LATENCY", "PING", "SCAN",
     "SCRIPT", "SLOWLOG", "TIME", "WAIT", "WAITAOF")
)  # fmt: skip
"""Commands that name no key: they concern a server, whichever is asked."""


def key_of(command: Sequence[Value]) -> str | None:
    """The key that says which server must run a command; None when any may."""
    name = command[0]
    if name in _KEYLESS:
        return None
    if name == "XREAD":
        at = command.index("STREAMS") + 1
    elif name in ("MEMORY", "OBJECT", "ZINTER"):
        at = 2
    else:
        at = 1
    key = command[at]
    return key.decode() if isinstance(key, bytes) else str(key)


def slot_of(key: str) -> int:
    """The hash slot of a key."""
    return int(key_slot(key.encode()))


@dataclass(frozen=True, slots=True)
class SlotMap:
    """Which primary serves which slots, as one node saw it."""

    starts: tuple[int, ...]
    """The first slot of each range, ascending."""
    ranges: tuple[tuple[int, Address], ...]
    """Of each range its last slot and its primary."""
    nodes: tuple[Address, ...]
    """Every node that serves slots, replicas as well."""

    def primary_of(self, slot: int) -> Address | None:
        """Who serves a slot; None when nobody does."""
        i = bisect_right(self.starts, slot) - 1
        if i < 0 or self.ranges[i][0] < slot:
            return None
        return self.ranges[i][1]

    @property
    def primaries(self) -> tuple[Address, ...]:
        """Every primary that serves slots."""
        return tuple(dict.fromkeys(address for _, address in self.ranges))


def slots_in(reply: Sequence[Any], asked: Address) -> SlotMap:
    """Read the answer of CLUSTER SLOTS; a node that does not know its own name is `asked`."""
    found = sorted(
        (int(first), int(last), _address(primary, asked)) for first, last, primary, *_ in reply
    )
    nodes = (_address(node, asked) for _, _, *serving in reply for node in serving)
    return SlotMap(
        starts=tuple(first for first, _, _ in found),
        ranges=tuple((last, address) for _, last, address in found),
        nodes=tuple(dict.fromkeys(nodes)),
    )


def _address(node: Sequence[Any], asked: Address) -> Address:
    host = node[0].decode() if node[0] else ""
    # `?` and nothing both say: the address over which you reached me.
    return (host if host not in ("", "?") else asked[0], int(node[1]))

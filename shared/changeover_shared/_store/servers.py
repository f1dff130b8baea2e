"""Which server a key belongs to: always the one there is, or one of a Cluster's primaries."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Protocol

from redis import exceptions as foreign

from changeover_shared._errors import StoreUnavailable
from changeover_shared._server.connect import async_client
from changeover_shared._server.url import Target
from changeover_shared._store.slots import Address, SlotMap, slot_of, slots_in
from changeover_shared._store.wire import Wire

MAP_TIMEOUT_S = 1.0
"""How long a node of a Cluster may take to say who serves what; the next one is asked then."""


class Servers(Protocol):
    """The servers of one URL."""

    async def of(self, key: str | None) -> Wire:
        """The server that runs commands on a key. Raises what redis-py and we raise."""

    async def at(self, key: str) -> Wire:
        """The same of a key, whether or not it answers."""

    async def every(self) -> Sequence[Wire]:
        """Every primary, whether or not it answers."""

    def moved(self, error: foreign.MovedError) -> bool:
        """Take note of a slot that is elsewhere; False when that cannot be."""

    def asked(self, error: foreign.AskError) -> Wire | None:
        """Who has a key that is on its way; None when that cannot be."""

    @property
    def changes(self) -> int:
        """How often a server turned out to be another one, or the same after a restart."""

    @property
    def meetings(self) -> int:
        """How many connections have been made."""

    async def aclose(self) -> None:
        """Close every connection."""


class OneServer:
    """A server alone, or the primary that sentinels name."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def of(self, key: str | None) -> Wire:
        """Always the same."""
        if not self._wire.history.replid:
            await self._wire.met()
        return self._wire

    async def at(self, key: str) -> Wire:
        """Always the same."""
        return self._wire

    async def every(self) -> Sequence[Wire]:
        """It alone."""
        return (self._wire,)

    def moved(self, error: foreign.MovedError) -> bool:
        """A Cluster must be reached by a URL of one."""
        return False

    def asked(self, error: foreign.AskError) -> Wire | None:
        """As `moved`."""
        return None

    @property
    def changes(self) -> int:
        """How often it turned out to be another one."""
        return self._wire.history.changes

    @property
    def meetings(self) -> int:
        """How many connections have been made to it."""
        return self._wire.history.meetings

    async def aclose(self) -> None:
        """Close every connection."""
        await self._wire.aclose()


class Cluster:
    """The primaries of a Cluster, by the map that its nodes gave last."""

    def __init__(self, target: Target, *, name: str, timeout_s: float) -> None:
        self._target = target
        self._name = name
        self._timeout_s = timeout_s
        self._map = SlotMap((), (), ())
        self._moved: dict[int, Address] = {}
        """Slots that are elsewhere than the map says."""
        self._told_by: Address | None = None
        """The node that gave the map."""
        self._stale = True
        self._newcomers = 0
        """How many primaries were none in the map before."""
        self._refreshing = asyncio.Lock()
        self._wires: dict[Address, Wire] = {}
        self._doubts = 0
        self._doubted: dict[Address, int] = {}
        """Servers that did not answer, and which doubt of all was the latest one."""

    async def of(self, key: str | None) -> Wire:
        """The primary of a key's slot; of no key, any."""
        if key is None:
            return await self._any()
        wire = await self.at(key)
        if not wire.history.replid:
            await wire.met()
        return wire

    async def at(self, key: str) -> Wire:
        """Where the map says that a key is."""
        if self._stale:
            await self._refresh()
        slot = slot_of(key)
        address = self._moved.get(slot) or self._map.primary_of(slot)
        if address is None:
            self._stale = True
            raise StoreUnavailable(reason=f"no primary serves the slot of {key!r}")
        return self._wire(address)

    async def _any(self) -> Wire:
        """A primary that has answered when it was asked last, if there is one."""
        if self._stale:
            await self._refresh()
        lost: Exception = StoreUnavailable(reason="no primary is known")
        for address in sorted(self._map.primaries, key=lambda one: self._doubted.get(one, 0)):
            wire = self._wire(address)
            try:
                await wire.met()
            except (OSError, foreign.RedisError, StoreUnavailable) as error:
                lost = error
            else:
                return wire
        raise lost

    async def every(self) -> Sequence[Wire]:
        """Every primary that serves slots."""
        if self._stale:
            await self._refresh()
        return [self._wire(address) for address in self._map.primaries]

    def moved(self, error: foreign.MovedError) -> bool:
        """Go where the slot is from now on."""
        self._moved[error.slot_id] = (error.host, error.port)
        if (error.host, error.port) not in self._map.primaries:
            self._stale = True
        return True

    def asked(self, error: foreign.AskError) -> Wire | None:
        """Where a key already is, while its slot is not."""
        return self._wire((error.host, error.port))

    @property
    def changes(self) -> int:
        """How often a server turned out to be another one, a promoted replica among them."""
        return self._newcomers + sum(wire.history.changes for wire in self._wires.values())

    @property
    def meetings(self) -> int:
        """How many connections have been made to all of them."""
        return sum(wire.history.meetings for wire in self._wires.values())

    async def aclose(self) -> None:
        """Close every connection."""
        for wire in self._wires.values():
            await wire.aclose()

    def _wire(self, address: Address) -> Wire:
        wire = self._wires.get(address)
        if wire is None:
            wire = self._wires[address] = Wire.to(
                self._target.at(*address), name=self._name, timeout_s=self._timeout_s
            )
            wire.on_lost = partial(self._doubt, address)
        return wire

    def _doubt(self, address: Address) -> None:
        """Ask for the map anew before it is used again: a replica may have been promoted."""
        self._doubts += 1
        self._doubted[address] = self._doubts
        self._stale = True

    async def _refresh(self) -> None:
        async with self._refreshing:
            if not self._stale:
                return
            known = list(dict.fromkeys((*self._map.nodes, *self._target.nodes)))
            if self._told_by in known:
                # It comes last: the others may have lost it and promoted its replica.
                first = known.index(self._told_by) + 1
                known = known[first:] + known[:first]
            reason = "no node was asked"
            for address in known:
                try:
                    found = await self._map_at(address)
                except (OSError, foreign.RedisError) as error:
                    reason = str(error) or type(error).__name__
                    continue
                if found.ranges:
                    if self._map.ranges:
                        before = self._map.primaries
                        self._newcomers += len({*found.primaries}.difference(before))
                    self._map, self._moved, self._stale = found, {}, False
                    self._told_by = address
                    return
                reason = "it serves no slots"
            raise StoreUnavailable(reason=f"no node of the Cluster answers: {reason}")

    async def _map_at(self, address: Address) -> SlotMap:
        client = async_client(
            self._target.at(*address), name=self._name, socket_timeout=MAP_TIMEOUT_S
        )
        client.response_callbacks.clear()
        try:
            reply = await client.execute_command("CLUSTER", "SLOTS")  # type: ignore[no-untyped-call]
            return slots_in(reply, address)
        finally:
            await client.aclose()

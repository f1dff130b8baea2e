"""Place what lost its holder or came due, and ring for it; say farewell to Redis."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from changeover_shared._settings import Settings
from changeover_shared._store.lease_store import LeaseStore
from changeover_shared._store.records import Peeked

FAREWELL_S = 2.0
"""How long a process that stops waits for Redis; what it leaves behind runs out by itself."""


async def close(store: LeaseStore) -> None:
    """Close a store's connections; what a hung server still owes is not waited for."""
    with suppress(TimeoutError):
        async with asyncio.timeout(FAREWELL_S):
            await store.aclose()


def max_ttl_ms(settings: Settings) -> int:
    """How far ahead a lease may end; further, and the server's clock has stepped back."""
    return 10 * round(settings.lease.total_seconds() * 1000)


async def place_overdue(store: LeaseStore, partition: int, peeked: Peeked) -> None:
    """Place the expired and due sessions that a look has shown, and ring their routes."""
    overdue = (*peeked.expired, *peeked.due)
    if overdue:
        for route in await store.reap(partition, overdue):
            await store.ring(route, [partition])


async def release_all(store: LeaseStore, settings: Settings, incarnation: str) -> int:
    """End every lease of a dead incarnation and offer its sessions at once; how many there were.

    Safe to repeat, and harmless if the incarnation lives: its next write is refused.
    """
    count = await store.evict(incarnation)
    if count:
        await asyncio.gather(
            *(_visit(store, settings, partition) for partition in range(store.keys.partitions))
        )
    await store.unregister(incarnation)
    return count


async def _visit(store: LeaseStore, settings: Settings, partition: int) -> None:
    peeked = await store.peek(partition, [], window=0, max_ttl_ms=max_ttl_ms(settings))
    await place_overdue(store, partition, peeked)

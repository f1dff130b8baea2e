"""The last words to Redis of a process that stops."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from changeover_shared._store.lease_store import LeaseStore

FAREWELL_S = 2.0
"""How long a process that stops waits for Redis; what it leaves behind runs out by itself."""


async def close(store: LeaseStore) -> None:
    """Close a store's connections; what a hung server still owes is not waited for."""
    with suppress(TimeoutError):
        async with asyncio.timeout(FAREWELL_S):
            await store.aclose()

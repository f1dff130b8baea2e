"""A fleet's stores on every target: fakeredis with the same scripts, and real servers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import fakeredis

from changeover_shared._settings import Settings, read_settings
from changeover_shared._store.executor import Executor
from changeover_shared._store.fleet import Fleet
from changeover_shared._store.lease_store import LeaseStore
from changeover_shared._store.store import Store
from changeover_worker.testing._snapshot import every_key, keys_like


@dataclass
class Stores:
    """Both sides of the store on one server, and the bare connection below them."""

    producer: Store
    worker: LeaseStore
    executor: Executor
    connect: Callable[[], Awaitable[Executor]] | None = None
    """Opens connections of another client to the same server."""

    async def dump(self) -> dict[str, Any]:
        """Every key with its whole value, to assert that nothing changed."""
        return await every_key(self.executor)

    async def keys(self, pattern: str = "*") -> list[str]:
        """The keys that match."""
        return [key.decode() for key in await keys_like(self.executor, pattern)]

    async def empty(self) -> None:
        """Delete every key."""
        await self.executor.on_every_primary("FLUSHALL")

    async def forget_scripts(self) -> None:
        """Have every server forget every script."""
        await self.executor.on_every_primary("SCRIPT", "FLUSH")


def small_settings(**given: Any) -> Settings:
    """Settings of a small fleet; `given` wins."""
    return read_settings(**{"partitions": 4, **given})


def fake_executor(server: fakeredis.FakeServer) -> Executor:
    """An executor on fakeredis; several on one `server` share its keys."""
    return Executor.given(
        fakeredis.FakeAsyncRedis(server=server, protocol=2),
        fakeredis.FakeAsyncRedis(server=server, protocol=2),
    )


@asynccontextmanager
async def stores_on(executor: Executor, settings: Settings) -> AsyncIterator[Stores]:
    """Both sides of the store over one executor, closed afterwards."""
    try:
        fleet = await Fleet.join(executor, settings)
        yield Stores(Store(fleet), LeaseStore(fleet), executor)
    finally:
        await executor.aclose()


@asynccontextmanager
async def lease_store_on_fakeredis(settings: Settings | None = None) -> AsyncIterator[LeaseStore]:
    """A worker's store on a fresh fakeredis."""
    chosen = settings or small_settings()
    async with stores_on(fake_executor(fakeredis.FakeServer()), chosen) as stores:
        yield stores.worker

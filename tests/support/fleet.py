"""A fleet's stores on every target: fakeredis with the same scripts, and real servers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import fakeredis

from changeover_shared._executor import Executor
from changeover_shared._fleet import Fleet
from changeover_shared._lease_store import LeaseStore
from changeover_shared._settings import Settings, read_settings
from changeover_shared._store import Store
from tests.support.servers import SERVERS

TARGETS = ("fakeredis", *SERVERS)


@dataclass
class Stores:
    """Both sides of the store on one server, and the bare connection below them."""

    producer: Store
    worker: LeaseStore
    executor: Executor

    async def dump(self) -> dict[str, Any]:
        """Every key with its whole value, to assert that nothing changed."""
        found: dict[str, Any] = {}
        for key in sorted(await self.executor.command("KEYS", "*")):
            kind = (await self.executor.command("TYPE", key)).decode()
            read = {
                "string": ("GET", key),
                "hash": ("HGETALL", key),
                "zset": ("ZRANGE", key, 0, -1, "WITHSCORES"),
                "stream": ("XRANGE", key, "-", "+"),
                "list": ("LRANGE", key, 0, -1),
                "set": ("SMEMBERS", key),
            }[kind]
            value = await self.executor.command(*read)
            if kind == "hash":
                value = sorted(zip(value[::2], value[1::2], strict=True))
            found[key.decode()] = value
        return found


def small_settings(**given: Any) -> Settings:
    """Settings of a small fleet; `given` wins."""
    return read_settings(**{"partitions": 4, **given})


def fake_executor(server: fakeredis.FakeServer) -> Executor:
    """An executor on fakeredis; several on one `server` share its keys."""
    return Executor(
        fakeredis.FakeAsyncRedis(server=server, protocol=2),
        fakeredis.FakeAsyncRedis(server=server, protocol=2),
    )


@asynccontextmanager
async def stores_on(executor: Executor, settings: Settings) -> AsyncIterator[Stores]:
    """Both sides of the store over one executor, closed afterwards."""
    fleet = await Fleet.join(executor, settings)
    try:
        yield Stores(Store(fleet, settings), LeaseStore(fleet, settings), executor)
    finally:
        await executor.aclose()


@asynccontextmanager
async def lease_store_on_fakeredis(settings: Settings | None = None) -> AsyncIterator[LeaseStore]:
    """A worker's store on a fresh fakeredis."""
    chosen = settings or small_settings()
    async with stores_on(fake_executor(fakeredis.FakeServer()), chosen) as stores:
        yield stores.worker

"""A fleet's stores on every target: fakeredis with the same scripts, and real servers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import fakeredis

from changeover_shared._settings import Settings, read_settings
from changeover_shared._store.executor import Executor
from changeover_shared._store.fleet import Fleet
from changeover_shared._store.lease_store import LeaseStore
from changeover_shared._store.store import Store
from tests.support.servers import SERVERS

TARGETS = ("fakeredis", *SERVERS)

_READ: dict[str, Callable[[bytes], tuple[bytes | str | int, ...]]] = {
    "string": lambda key: ("GET", key),
    "hash": lambda key: ("HGETALL", key),
    "zset": lambda key: ("ZRANGE", key, 0, -1, "WITHSCORES"),
    "stream": lambda key: ("XRANGE", key, "-", "+"),
    "list": lambda key: ("LRANGE", key, 0, -1),
    "set": lambda key: ("SMEMBERS", key),
}
"""How each type of key is read whole."""


@dataclass
class Stores:
    """Both sides of the store on one server, and the bare connection below them."""

    producer: Store
    worker: LeaseStore
    executor: Executor

    async def dump(self) -> dict[str, Any]:
        """Every key with its whole value, to assert that nothing changed."""
        found: dict[str, Any] = {}
        keys = sorted(await self.executor.command("KEYS", "*"))
        kinds = await self.executor.commands([("TYPE", key) for key in keys])
        reads = [_READ[kind.decode()](key) for key, kind in zip(keys, kinds, strict=True)]
        values = await self.executor.commands(reads)
        for key, kind, value in zip(keys, kinds, values, strict=True):
            if kind == b"hash":
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
        yield Stores(Store(fleet), LeaseStore(fleet), executor)
    finally:
        await executor.aclose()


@asynccontextmanager
async def lease_store_on_fakeredis(settings: Settings | None = None) -> AsyncIterator[LeaseStore]:
    """A worker's store on a fresh fakeredis."""
    chosen = settings or small_settings()
    async with stores_on(fake_executor(fakeredis.FakeServer()), chosen) as stores:
        yield stores.worker

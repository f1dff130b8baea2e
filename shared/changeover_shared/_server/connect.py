"""Connect to a server that is there: clients of redis-py that never retry by themselves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from importlib.metadata import version
from typing import Any, cast

import redis
import redis.asyncio
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry as AsyncRetry
from redis.asyncio.sentinel import Sentinel as AsyncSentinel
from redis.backoff import NoBackoff
from redis.connection import AbstractConnection as SyncConnection
from redis.connection import HiredisRespSerializer
from redis.driver_info import DriverInfo
from redis.retry import Retry
from redis.sentinel import Sentinel

from changeover_shared._server.url import Target

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 5.0
SENTINEL_TIMEOUT_S = 1.0
MAX_CONNECTIONS = 64
"""The most connections of one client; who wants one more is told that Redis is not available."""


def async_client(
    target: Target,
    *,
    name: str = "",
    max_connections: int = MAX_CONNECTIONS,
    socket_timeout: float | None = ANSWER_TIMEOUT_S,
    meet: Callable[[AbstractConnection], Awaitable[None]] | None = None,
) -> redis.asyncio.Redis:
    """A client that connects at its first command, answers in bytes and never retries.

    `socket_timeout` is in seconds and must be longer than any block time; `name` is what
    CLIENT LIST shows; `meet` is awaited with each new connection and prepares it. Where the task
    that waits may be cancelled, give no time-out and use `asyncio.timeout`: up to Python 3.11
    redis-py loses a cancellation that comes while it sends under a socket timeout.
    """
    options = connection_options(target, name, max_connections, socket_timeout)
    options |= {"retry": _never_async(), "redis_connect_func": meet}
    if target.kind == "sentinel":
        sentinels = AsyncSentinel(  # type: ignore[no-untyped-call]
            target.nodes, sentinel_kwargs={**_to_sentinels(target), "retry": _never_async()}
        )
        client: redis.asyncio.Redis = sentinels.master_for(target.service, **options)
    else:
        client = redis.asyncio.Redis(**options)
    pool = client.connection_pool
    pool.connection_class = _packing_in_c(pool.connection_class)
    return client


def sync_client(
    target: Target,
    *,
    name: str = "",
    max_connections: int = MAX_CONNECTIONS,
    socket_timeout: float | None = ANSWER_TIMEOUT_S,
    meet: Callable[[SyncConnection], None] | None = None,
) -> redis.Redis:
    """As `async_client`, for code without an event loop; may be shared by threads."""
    options = connection_options(target, name, max_connections, socket_timeout)
    options |= {"retry": _never(), "redis_connect_func": meet}
    if target.kind != "sentinel":
        return redis.Redis(**options)
    asked = {**_to_sentinels(target), "retry": _never()}
    sentinels = Sentinel(target.nodes, sentinel_kwargs=asked)  # type: ignore[no-untyped-call]
    primary = sentinels.master_for(target.service, **options)  # type: ignore[no-untyped-call]
    return cast(redis.Redis, primary)


async def close_async(client: redis.asyncio.Redis) -> None:
    """Close a client, with what it asks for the primary."""
    await client.aclose()
    manager = getattr(client.connection_pool, "sentinel_manager", None)
    for sentinel in manager.sentinels if manager is not None else ():
        await sentinel.aclose()


def close_sync(client: redis.Redis) -> None:
    """As `close_async`."""
    client.close()
    manager = getattr(client.connection_pool, "sentinel_manager", None)
    if manager is not None:
        manager.close()


def connection_options(
    target: Target, name: str, max_connections: int, socket_timeout: float | None
) -> dict[str, Any]:
    """What both clients of redis-py are told, apart from their kind of (no) retry."""
    if target.scheme == "embedded":
        raise ValueError(f"{target.shown} must be reached before it can be connected to")
    if target.kind == "cluster":
        raise ValueError("a Cluster is connected to node by node")
    options: dict[str, Any] = {
        "db": target.db,
        "username": target.username,
        "password": target.password,
        "client_name": name or None,
        "max_connections": max_connections,
        "socket_timeout": socket_timeout,
        "socket_connect_timeout": CONNECT_TIMEOUT_S,
        "health_check_interval": 0,
        "protocol": 2,
        "driver_info": _driver(),
    }
    if target.scheme == "unix":
        return options | {"unix_socket_path": target.path}
    options |= {"socket_keepalive": True, **_tls(target)}
    if target.kind == "sentinel":
        return options
    return options | {"host": target.host, "port": target.port}


def _to_sentinels(target: Target) -> dict[str, Any]:
    """How the sentinels are asked, which are apart from the servers that they watch."""
    return {
        "username": target.sentinel_username,
        "password": target.sentinel_password,
        "socket_timeout": SENTINEL_TIMEOUT_S,
        "socket_connect_timeout": SENTINEL_TIMEOUT_S,
        "socket_keepalive": True,
        **_tls(target),
    }


def _never_async() -> AsyncRetry:
    return AsyncRetry(NoBackoff(), 0)


def _never() -> Retry:
    return Retry(NoBackoff(), 0)


def _packing_in_c(kind: type[AbstractConnection]) -> type[AbstractConnection]:
    """The same connection with the packer that redis-py gives its sync client only: its other
    one takes three times as long for a script of sixty arguments."""
    pack = HiredisRespSerializer().pack
    return type(kind.__name__, (kind,), {"pack_command": lambda _, *args: pack(*args)})


@cache
def _driver() -> DriverInfo:
    return DriverInfo().add_upstream_driver("changeover", version("changeover"))


def _tls(target: Target) -> dict[str, Any]:
    if target.scheme != "rediss":
        return {}
    given: dict[str, Any] = {"ssl": True, **dict(target.tls)}
    if "ssl_check_hostname" in given:
        given["ssl_check_hostname"] = given["ssl_check_hostname"] == "true"
    return given

"""Connect to a server that is there: clients of redis-py that never retry by themselves."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from typing import Any

import redis
import redis.asyncio
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.connection import HiredisRespSerializer
from redis.driver_info import DriverInfo
from redis.retry import Retry

from changeover_shared._server.url import Target

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 5.0


def async_client(
    target: Target,
    *,
    name: str = "",
    max_connections: int | None = None,
    socket_timeout: float | None = ANSWER_TIMEOUT_S,
) -> redis.asyncio.Redis:
    """A client that connects at its first command, answers in bytes and never retries.

    `socket_timeout` is in seconds and must be longer than any block time; `name` is what
    CLIENT LIST shows. Where the task that waits may be cancelled, give None and use
    `asyncio.timeout`: up to Python 3.11 redis-py loses a cancellation that comes while it sends
    under a socket timeout.
    """
    options = connection_options(target, name, max_connections, socket_timeout)
    client = redis.asyncio.Redis(**options, retry=AsyncRetry(NoBackoff(), 0))
    pool = client.connection_pool
    pool.connection_class = _packing_in_c(pool.connection_class)
    return client


def sync_client(
    target: Target,
    *,
    name: str = "",
    max_connections: int | None = None,
    socket_timeout: float | None = ANSWER_TIMEOUT_S,
) -> redis.Redis:
    """As `async_client`, for code without an event loop; may be shared by threads."""
    options = connection_options(target, name, max_connections, socket_timeout)
    return redis.Redis(**options, retry=Retry(NoBackoff(), 0))


def connection_options(
    target: Target, name: str, max_connections: int | None, socket_timeout: float | None
) -> dict[str, Any]:
    """What both clients of redis-py are told, apart from their kind of (no) retry."""
    if target.scheme == "embedded":
        raise ValueError(f"{target.shown} must be reached before it can be connected to")
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
    options |= {"host": target.host, "port": target.port, "socket_keepalive": True}
    return options | {"ssl": True, **_tls(target)} if target.scheme == "rediss" else options


def _packing_in_c(kind: type[AbstractConnection]) -> type[AbstractConnection]:
    """The same connection with the packer that redis-py gives its sync client only: its other
    one takes three times as long for a script of sixty arguments."""
    pack = HiredisRespSerializer().pack
    return type(kind.__name__, (kind,), {"pack_command": lambda _, *args: pack(*args)})


@cache
def _driver() -> DriverInfo:
    return DriverInfo().add_upstream_driver("changeover", version("changeover"))


def _tls(target: Target) -> dict[str, Any]:
    given: dict[str, Any] = dict(target.tls)
    if "ssl_check_hostname" in given:
        given["ssl_check_hostname"] = given["ssl_check_hostname"] == "true"
    return given

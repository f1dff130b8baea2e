"""Where Redis is and how to connect to it: URLs in, clients that never retry by themselves out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

import redis
import redis.asyncio
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.connection import HiredisRespSerializer
from redis.driver_info import DriverInfo
from redis.retry import Retry

from changeover_shared._errors import Invalid

if TYPE_CHECKING:
    from changeover_shared._server.embedded import Embedded
    from changeover_shared._settings import Settings

DEFAULT_URL = "redis://localhost:6379/0"
DEFAULT_DIRECTORY = "./.changeover"
CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 5.0

Scheme = Literal["redis", "rediss", "unix", "embedded"]

SCHEMES: Mapping[str, Scheme] = {
    "redis": "redis",
    "valkey": "redis",
    "rediss": "rediss",
    "unix": "unix",
    "embedded": "embedded",
}
_TLS_OPTIONS = (
    "ssl_ca_certs",
    "ssl_ca_path",
    "ssl_cert_reqs",
    "ssl_certfile",
    "ssl_check_hostname",
    "ssl_keyfile",
)
_TLS_VALUES = {
    "ssl_cert_reqs": ("required", "optional", "none"),
    "ssl_check_hostname": ("true", "false"),
}


@dataclass(frozen=True, slots=True, repr=False)
class Target:
    """One place where a server is or, for `embedded`, will be. No text of it has a secret."""

    scheme: Scheme
    host: str = ""
    port: int = 6379
    path: str = ""
    """The socket of `unix`, the directory of `embedded`."""
    db: int = 0
    username: str | None = None
    password: str | None = None
    tls: tuple[tuple[str, str], ...] = ()

    @property
    def shown(self) -> str:
        """The URL as people may see it: without the password, and without a lone user name."""
        if self.scheme == "embedded":
            return f"embedded://{self.path}"
        who = ""
        if self.password:
            who = f"{quote(self.username or '')}:***@"
        elif self.username:
            who = "***@"
        if self.scheme == "unix":
            return f"unix://{who}{self.path}?db={self.db}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{who}{host}:{self.port}/{self.db}"

    def __repr__(self) -> str:
        return f"Target({self.shown!r})"


@dataclass(frozen=True, slots=True)
class Reached:
    """A server that is there, and our share of it when it is an embedded one."""

    target: Target
    embedded: Embedded | None = None

    def close(self) -> None:
        """Leave an embedded server; the last one out stops it. May be repeated."""
        if self.embedded is not None:
            self.embedded.close()


def redis_url(explicit: str | None, settings: Settings) -> str:
    """Decide where Redis is: the argument, CHANGEOVER_REDIS_URL, REDIS_URL, an embedded server
    whose directory is there already, else localhost."""
    told = explicit or settings.redis_url or os.environ.get("REDIS_URL")
    if told:
        return told
    return f"embedded://{DEFAULT_DIRECTORY}" if Path(DEFAULT_DIRECTORY).is_dir() else DEFAULT_URL


def parse_url(url: str) -> Target:
    """Read a URL. Raises `Invalid`, whose text never repeats the URL: it may hold a password."""
    scheme = SCHEMES.get(url.partition("://")[0].lower()) if "://" in url else None
    if scheme is None:
        raise _invalid(f"must start with one of {', '.join(f'{name}://' for name in SCHEMES)}")
    if scheme == "embedded":
        return _embedded(url)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        # Its text may quote a part of the password, so it is not chained.
        raise _invalid(
            "host and port cannot be read: the port is a number from 1 to 65535, an IPv6 address "
            "stands in [], and / ? # @ % in a password are percent-encoded"
        ) from None
    if parts.fragment:
        raise _invalid("has a part after #; percent-encode a # in the password")
    if scheme == "unix":
        return _unix(parts)
    if not parts.hostname:
        raise _invalid(f"names no host; write {scheme}://host:6379/0")
    if port == 0:
        raise _invalid("port 0 is not a port")
    options = _options(parts, allowed=("db", *_TLS_OPTIONS) if scheme == "rediss" else ("db",))
    return Target(
        scheme=scheme,
        host=unquote(parts.hostname),
        port=port or 6379,
        db=_db(parts.path.removeprefix("/") or options.pop("db", "0")),
        username=_secret(parts.username),
        password=_secret(parts.password),
        tls=tuple(sorted(options.items())),
    )


def reach(url: str) -> Reached:
    """Make sure that the server is there: an embedded one is started or attached to.

    Blocks for as long as an embedded server starts. Raises `Invalid`, `ExtraMissing`, and
    `ServerUnfit` when it does not start; nothing is sent to a server that is not embedded.
    """
    target = parse_url(url)
    if target.scheme != "embedded":
        return Reached(target)
    # Imported here because it needs file locks that not every platform has.
    from changeover_shared._server.embedded import attach

    embedded = attach(Path(target.path))
    return Reached(parse_url(embedded.url), embedded)


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


def _embedded(url: str) -> Target:
    directory = unquote(url.partition("://")[2])
    if "\0" in directory:
        raise _invalid("the directory after embedded:// holds a NUL byte")
    return Target(scheme="embedded", path=directory or DEFAULT_DIRECTORY)


def _unix(parts: SplitResult) -> Target:
    if parts.hostname or not parts.path.startswith("/") or parts.path == "/":
        raise _invalid("names no socket; write unix:///absolute/path/of/the.sock")
    return Target(
        scheme="unix",
        path=unquote(parts.path),
        db=_db(_options(parts, allowed=("db",)).pop("db", "0")),
        username=_secret(parts.username),
        password=_secret(parts.password),
    )


def _options(parts: SplitResult, *, allowed: tuple[str, ...]) -> dict[str, str]:
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if not options.keys() <= set(allowed):
        # Unnamed: with an unescaped ? in the password, the name is a piece of it.
        raise _invalid(f"has an unknown option; {parts.scheme}:// takes {', '.join(allowed)}")
    for name, values in _TLS_VALUES.items():
        if options.get(name, values[0]) not in values:
            raise _invalid(f"{name} must be one of {', '.join(values)}")
    return options


def _db(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise _invalid("the database, after the last /, is not a number")
    return int(text)


def _secret(text: str | None) -> str | None:
    return unquote(text) if text else None


def _invalid(reason: str) -> Invalid:
    return Invalid(field="Redis URL", reason=reason)

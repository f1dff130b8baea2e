"""Where Redis is: URLs in, targets out. No I/O here but one look for a directory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from changeover_shared._errors import Invalid

if TYPE_CHECKING:
    from changeover_shared._settings import Settings

DEFAULT_URL = "redis://localhost:6379/0"
DEFAULT_DIRECTORY = "./.changeover"
EMBEDDED_URL = f"embedded://{DEFAULT_DIRECTORY}"

Scheme = Literal["redis", "rediss", "unix", "embedded"]
Kind = Literal["single", "cluster", "sentinel"]

SCHEMES: Mapping[str, tuple[Scheme, Kind]] = {
    "redis": ("redis", "single"),
    "valkey": ("redis", "single"),
    "rediss": ("rediss", "single"),
    "unix": ("unix", "single"),
    "redis+cluster": ("redis", "cluster"),
    "rediss+cluster": ("rediss", "cluster"),
    "redis+sentinel": ("redis", "sentinel"),
    "rediss+sentinel": ("rediss", "sentinel"),
    "embedded": ("embedded", "single"),
}
_DEFAULT_PORTS: Mapping[Kind, int] = {"single": 6379, "cluster": 6379, "sentinel": 26379}
_SENTINEL_OPTIONS = ("sentinel_password", "sentinel_username")
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
    kind: Kind = "single"
    nodes: tuple[tuple[str, int], ...] = ()
    """Of `cluster` some of its nodes, of `sentinel` the sentinels: any that answers will do."""
    service: str = ""
    """What the sentinels call the primary."""
    sentinel_username: str | None = None
    sentinel_password: str | None = None

    def at(self, host: str, port: int) -> Target:
        """One node of a Cluster, reached as the others are."""
        return replace(self, kind="single", host=host, port=port, nodes=())

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
        if self.kind == "single":
            return f"{self.scheme}://{who}{_address(self.host, self.port)}/{self.db}"
        nodes = ",".join(_address(*node) for node in self.nodes)
        if self.kind == "cluster":
            return f"{self.scheme}+cluster://{who}{nodes}"
        return f"{self.scheme}+sentinel://{who}{nodes}/{self.service}/{self.db}"

    def __repr__(self) -> str:
        return f"Target({self.shown!r})"


def told_url(explicit: str | None, settings: Settings) -> str | None:
    """What somebody has said of where Redis is, or None."""
    return explicit or settings.redis_url or os.environ.get("REDIS_URL") or None


def redis_url(explicit: str | None, settings: Settings) -> str:
    """Decide where Redis is: the argument, CHANGEOVER_REDIS_URL, REDIS_URL, an embedded server
    whose directory is there already, else localhost."""
    there = EMBEDDED_URL if Path(DEFAULT_DIRECTORY).is_dir() else DEFAULT_URL
    return told_url(explicit, settings) or there


def parse_url(url: str) -> Target:
    """Read a URL. Raises `Invalid`, whose text never repeats the URL: it may hold a password."""
    name = url.partition("://")[0].lower() if "://" in url else ""
    if name not in SCHEMES:
        raise _invalid(f"must start with one of {', '.join(f'{name}://' for name in SCHEMES)}")
    scheme, kind = SCHEMES[name]
    if scheme == "embedded":
        return _embedded(url)
    try:
        parts = urlsplit(url)
        port = parts.port if kind == "single" else None
        host = _host(parts.hostname or "") if kind == "single" else ""
        nodes = _nodes(parts.netloc, kind) if kind != "single" else ()
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
    if kind == "single" and not parts.hostname:
        raise _invalid(f"names no host; write {scheme}://host:6379/0")
    if port == 0:
        raise _invalid("port 0 is not a port")
    allowed: tuple[str, ...] = ("db", *_TLS_OPTIONS) if scheme == "rediss" else ("db",)
    if kind == "sentinel":
        allowed += _SENTINEL_OPTIONS
    options = _options(parts, allowed=allowed)
    username, password = _secret(parts.username), _secret(parts.password)
    path = parts.path.removeprefix("/")
    if kind == "sentinel":
        service, _, path = path.partition("/")
        sentinel = {name: options.pop(name, None) for name in _SENTINEL_OPTIONS}
        if not service:
            raise _invalid(f"names no service; write {name}://host:26379,host:26379/SERVICE/0")
        return Target(
            scheme=scheme,
            kind=kind,
            nodes=nodes,
            service=unquote(service),
            db=_db(path or options.pop("db", "0")),
            username=username,
            password=password,
            tls=tuple(sorted(options.items())),
            sentinel_username=sentinel["sentinel_username"] or None,
            sentinel_password=sentinel["sentinel_password"] or None,
        )
    db = _db(path or options.pop("db", "0"))
    if kind == "cluster":
        if db != 0:
            raise _invalid("a Cluster has database 0 only")
        return Target(
            scheme=scheme,
            kind=kind,
            nodes=nodes,
            username=username,
            password=password,
            tls=tuple(sorted(options.items())),
        )
    return Target(
        scheme=scheme,
        host=host,
        port=port or 6379,
        db=db,
        username=username,
        password=password,
        tls=tuple(sorted(options.items())),
    )


def _nodes(netloc: str, kind: Kind) -> tuple[tuple[str, int], ...]:
    """The `host:port,host:port` of a Cluster or of sentinels. Raises `ValueError`."""
    if netloc.count("@") > 1:
        raise ValueError("one user for all")
    places = (urlsplit(f"//{place}") for place in netloc.rpartition("@")[2].split(","))
    found = []
    for place in places:
        port = place.port if place.port is not None else _DEFAULT_PORTS[kind]
        if not place.hostname or port == 0 or place.path:
            raise ValueError("no host")
        found.append((_host(place.hostname), port))
    return tuple(found)


def _host(text: str) -> str:
    """A host's name as it is looked up. Raises `ValueError` for one that cannot be."""
    host = unquote(text)
    if "\0" in host:
        raise ValueError("a NUL byte")
    host.encode("idna")
    return host


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
    if "ssl_keyfile" in options and "ssl_certfile" not in options:
        raise _invalid("ssl_keyfile is of no use without the certificate in ssl_certfile")
    for name, values in _TLS_VALUES.items():
        if options.get(name, values[0]) not in values:
            raise _invalid(f"{name} must be one of {', '.join(values)}")
    return options


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _db(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise _invalid("the database, after the last /, is not a number")
    return int(text)


def _secret(text: str | None) -> str | None:
    return unquote(text) if text else None


def _invalid(reason: str) -> Invalid:
    return Invalid(field="Redis URL", reason=reason)

"""Every key with its whole value, to see that nothing changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from changeover_shared._store.executor import Executor

_READ: dict[str, Callable[[bytes], tuple[bytes | str | int, ...]]] = {
    "string": lambda key: ("GET", key),
    "hash": lambda key: ("HGETALL", key),
    "zset": lambda key: ("ZRANGE", key, 0, -1, "WITHSCORES"),
    "stream": lambda key: ("XRANGE", key, "-", "+"),
    "list": lambda key: ("LRANGE", key, 0, -1),
    "set": lambda key: ("SMEMBERS", key),
}
"""How each type of key is read whole."""


async def keys_like(executor: Executor, pattern: str) -> list[bytes]:
    """The keys that match, on every primary, in order."""
    found = await executor.on_every_primary("KEYS", pattern)
    return sorted(key for keys in found.values() for key in keys)


async def every_key(executor: Executor, pattern: str = "*") -> dict[str, Any]:
    """The keys that match, with their values; a hash as its sorted pairs."""
    found: dict[str, Any] = {}
    keys = await keys_like(executor, pattern)
    kinds = await executor.commands([("TYPE", key) for key in keys]) if keys else []
    reads = [_READ[kind.decode()](key) for key, kind in zip(keys, kinds, strict=True)]
    values = await executor.commands(reads) if keys else []
    for key, kind, value in zip(keys, kinds, values, strict=True):
        if kind == b"hash":
            value = sorted(zip(value[::2], value[1::2], strict=True))
        found[key.decode()] = value
    return found


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """The keys that came, went or have another value."""
    return sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))

"""Which history a server has: its replication id, which changes with a failover or a restart."""

from __future__ import annotations

from typing import Final

from redis.exceptions import ResponseError

NO_REPLICATION: Final = "none"
"""The replication id of a server that has no INFO (fakeredis)."""


def knows_no_info(error: Exception) -> bool:
    """Whether the server answered that it has no INFO at all."""
    return isinstance(error, ResponseError) and "unknown command" in str(error).lower()


def replication_id_in(info: bytes) -> str:
    """The id in the answer of `INFO replication`."""
    for line in info.decode().splitlines():
        if line.startswith("master_replid:"):
            return line.partition(":")[2].strip()
    return NO_REPLICATION

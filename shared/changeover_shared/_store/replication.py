"""Which history a server has: its replication id, which changes with a failover or a restart.

Every connection asks for it before it is used. One that meets another history than the last one
did is given up before anything is sent on it: what was about to be sent claimed to know the
server, and does no more.
"""

from __future__ import annotations

from typing import Any, Final

from redis import exceptions as foreign
from redis.asyncio.connection import AbstractConnection as AsyncConnection
from redis.connection import AbstractConnection

NO_REPLICATION: Final = "none"
"""The replication id of a server that has no INFO (fakeredis)."""


class History:
    """The history of the server behind one client's connections, as the newest of them saw it."""

    def __init__(self, replid: str = "") -> None:
        self.replid = replid
        """Its replication id; empty until a connection has been made."""
        self.changes = 0
        """How often a connection has met another history than the one before."""

    async def meet(self, connection: AsyncConnection) -> None:
        """Prepare a new connection, and learn who is there. Raises what redis-py raises."""
        await connection.on_connect()
        await connection.send_command("INFO", "replication")
        self._take(await connection.read_response())

    def meet_at_once(self, connection: AbstractConnection) -> None:
        """As `meet`, for code without an event loop."""
        connection.on_connect()  # type: ignore[no-untyped-call]
        connection.send_command("INFO", "replication")  # type: ignore[no-untyped-call]
        self._take(connection.read_response())

    def _take(self, info: Any) -> None:
        facts = facts_in(info)
        if facts.get("role", "master") != "master":
            raise foreign.ReadOnlyError("READONLY it is a replica; use the URL of its primary")
        before, self.replid = self.replid, facts.get("master_replid", NO_REPLICATION)
        if before not in ("", self.replid):
            self.changes += 1
            raise foreign.ConnectionError("another server answers, or the same after a restart")


def facts_in(info: bytes) -> dict[str, str]:
    """The answer of INFO by name."""
    pairs = (line.partition(":") for line in info.decode().splitlines())
    return {name: value.strip() for name, colon, value in pairs if colon}

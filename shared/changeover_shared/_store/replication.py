"""Which history a server has: its replication id, which changes with a failover or a restart.

Every connection asks for it before it is used. One that meets another history than the last one
did is given up before anything is sent on it, and what claims to know one history is sent on no
connection to another: it may have waited while another connection met the new one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from weakref import WeakKeyDictionary

from redis import exceptions as foreign
from redis.asyncio.connection import AbstractConnection as AsyncConnection
from redis.connection import AbstractConnection

NO_REPLICATION: Final = "none"
"""The replication id of a server that has no INFO (fakeredis)."""

ANOTHER: Final = "another server answers, or the same after a restart"

AnyConnection = AsyncConnection | AbstractConnection


class History:
    """The history of the server behind one client's connections, as the newest of them saw it."""

    def __init__(self, replid: str = "") -> None:
        self.replid = replid
        """Its replication id; empty until a connection has been made."""
        self.changes = 0
        """How often a connection has met another history than the one before."""
        self.meetings = 0
        """How many connections have been made."""
        self._behind: WeakKeyDictionary[AnyConnection, str] = WeakKeyDictionary()

    async def meet(self, connection: AsyncConnection) -> None:
        """Prepare a new connection, and learn who is there. Raises what redis-py raises."""
        await connection.on_connect()
        await connection.send_command("INFO", "replication")
        self._take(connection, await connection.read_response())

    def meet_at_once(self, connection: AbstractConnection) -> None:
        """As `meet`, for code without an event loop."""
        connection.on_connect()  # type: ignore[no-untyped-call]
        connection.send_command("INFO", "replication")  # type: ignore[no-untyped-call]
        self._take(connection, connection.read_response())

    def check(self, connection: AnyConnection, claims: Iterable[str]) -> None:
        """Refuse a connection for what claims to know another history than the one behind it.

        Raises what redis-py raises. '' claims nothing.
        """
        behind = self._behind.get(connection, self.replid)
        if any(claim not in ("", behind) for claim in claims):
            raise foreign.ConnectionError(ANOTHER)

    def _take(self, connection: AnyConnection, info: Any) -> None:
        facts = facts_in(info)
        if facts.get("role", "master") != "master":
            raise foreign.ReadOnlyError("READONLY it is a replica; use the URL of its primary")
        self.meetings += 1
        before, self.replid = self.replid, facts.get("master_replid", NO_REPLICATION)
        self._behind[connection] = self.replid
        if before not in ("", self.replid):
            self.changes += 1
            raise foreign.ConnectionError(ANOTHER)


def facts_in(info: bytes) -> dict[str, str]:
    """The answer of INFO by name."""
    pairs = (line.partition(":") for line in info.decode().splitlines())
    return {name: value.strip() for name, colon, value in pairs if colon}

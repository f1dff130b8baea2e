"""Wait until writes are where their callers want them: on disk, or on replicas.

The replication stream of a primary is one order, so a WAIT behind any later write of the same
connection covers everything before it. One barrier runs at a time for each kind; who comes
meanwhile waits for the next one, together with everybody else. It says in which history it ran:
a failover between the write and the barrier confirms nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from changeover_shared._settings import Durability
from changeover_shared._store.replication import facts_in
from changeover_shared._store.scripts import Value


class Need(NamedTuple):
    """What a write waits for, and how long."""

    durability: Durability
    replicas: int
    """How many replicas must confirm, of `replica`."""
    timeout_ms: int

    @property
    def enough(self) -> int:
        """How many must confirm: the primary's disk, or so many replicas."""
        return self.replicas if self.durability == "replica" else 1


Apart = Callable[[Sequence[tuple[Value, ...]], float], Awaitable[list[Any]]]
"""Runs commands on a connection of their own, which may wait for so many seconds."""


class Barrier:
    """One kind of barrier on one server."""

    def __init__(self, need: Need, apart: Apart) -> None:
        self._need = need
        self._apart = apart
        self._waiting: list[asyncio.Future[tuple[int, str]]] = []
        self._running: asyncio.Task[None] | None = None
        self._key = ""

    async def passed(self, key: str) -> tuple[int, str]:
        """Wait for a barrier that begins from now on: how many confirmed, in which history.

        Raises what redis-py raises.
        """
        loop = asyncio.get_running_loop()
        mine: asyncio.Future[tuple[int, str]] = loop.create_future()
        self._waiting.append(mine)
        self._key = key
        if self._running is None:
            self._running = loop.create_task(self._run())
        return await mine

    async def _run(self) -> None:
        # A tick for what is issued at the same time: one barrier is for all of it.
        await asyncio.sleep(0)
        while self._waiting:
            waiting, self._waiting = self._waiting, []
            try:
                answer = confirmed_in(
                    await self._apart(
                        barrier_of(self._key, self._need), self._need.timeout_ms / 1000
                    ),
                    self._need,
                )
            except Exception as error:
                for one in waiting:
                    if not one.done():
                        one.set_exception(error)
                        one.exception()
            else:
                for one in waiting:
                    if not one.done():
                        one.set_result(answer)
        self._running = None


def barrier_of(key: str, need: Need) -> list[tuple[Value, ...]]:
    """The commands of a barrier: a write, the wait, and who it was."""
    wait: tuple[Value, ...] = ("WAIT", need.replicas, need.timeout_ms)
    if need.durability == "fsync":
        wait = ("WAITAOF", 1, 0, need.timeout_ms)
    return [("INCR", key), wait, ("INFO", "replication")]


def confirmed_in(replies: Sequence[Any], need: Need) -> tuple[int, str]:
    """How many confirmed, in which history. Raises the first error among the replies."""
    for reply in replies:
        if isinstance(reply, BaseException):
            raise reply
    _, count, info = replies
    confirmed = int(count[0]) if need.durability == "fsync" else int(count)
    return confirmed, facts_in(info).get("master_replid", "")

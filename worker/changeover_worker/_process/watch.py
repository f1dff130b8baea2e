"""Looking after the others: whose connections are gone for good is dead, and is evicted.

The worker that sweeps looks, and its deputy as well, so that one of them is there when the other
dies. Two looks a second ask for one connection of each worker; only when one is missing, or
somebody new has come, the server lists all. What the looks come to is decided in `evidence`; here
it is gathered, from every primary, and whatever goes wrong meanwhile is no evidence against
anybody. A wrong judgement would be harmless: the evicted worker is refused and goes on with others.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from redis.exceptions import ResponseError
from structlog.typing import FilteringBoundLogger

from changeover_shared._errors import ServerUnfit, StoreUnavailable
from changeover_shared._store.lease_store import LeaseStore
from changeover_worker._process.evidence import Connection, Evidence

LOOK_S: Final = 0.5
ANSWER_S: Final = 2.0
"""A server that takes longer gives no evidence."""
NEWCOMERS_S: Final = 5.0
"""How often the registry is asked for workers that were not seen yet."""
UNSEEN_S: Final = 30.0
"""How long after a list of all connections another one is asked for those that it did not show."""
WHY: Final = "its connections to Redis were gone"

_LINE = re.compile(rb"^id=(\d+) .*? name=([A-Za-z0-9._@-]+:[0-9a-f]{8}) ", re.M)


class Unsure(Exception):
    """A look that says nothing."""


class Watch:
    """One worker's part in looking after the others."""

    def __init__(
        self,
        store: LeaseStore,
        *,
        incarnation: str,
        on_duty: Callable[[], bool],
        log: FilteringBoundLogger,
    ) -> None:
        self.sees = True
        """Whether connections can be seen here, with their names."""
        self._store = store
        self._incarnation = incarnation
        self._on_duty = on_duty
        self._log = log
        self._evidence = Evidence(incarnation)
        self._changes = 0
        self._listed_at = 0.0
        self._asked_at = 0.0
        self._unseen: frozenset[str] = frozenset()
        self._missing_ms: dict[str, int] = {}

    async def run(self) -> None:
        """Look whenever it is this worker's duty; never returns."""
        self.sees = await self._can_see()
        if not self.sees:
            self._log.warning(
                "warning",
                code="no_evidence",
                text="which connections the server has cannot be seen, or they have no names: the "
                "death of a worker without a supervisor is noticed when its leases end",
            )
        while True:
            await asyncio.sleep(LOOK_S)
            if not self.sees or not self._on_duty():
                self._evidence.forget_all()
                continue
            try:
                async with asyncio.timeout(ANSWER_S):
                    await self._look()
            except (StoreUnavailable, ServerUnfit, ResponseError, TimeoutError, Unsure):
                self._evidence.forget_all()

    async def _look(self) -> None:
        """Whether somebody's connections are gone."""
        changes = self._store.executor.changes
        if changes != self._changes:
            self._changes = changes
            raise Unsure
        newcomers = await self._newcomers()
        known = self._evidence.known
        if known and not newcomers and not self._evidence.suspects and await self._all_there():
            return
        asked_at = time.monotonic()
        self._listed_at = asked_at
        seen: dict[str, set[Connection]] = {}
        for name, text in (await self._list("TYPE", "normal")).items():
            for number, incarnation in _named(text):
                seen.setdefault(incarnation, set()).add((name, number))
        if self._store.executor.changes != self._changes:
            raise Unsure
        now_ms = self._store.clock.now_ms()
        dead = self._evidence.look(seen, asked_at=asked_at, answered_at=time.monotonic())
        suspects = self._evidence.suspects
        self._missing_ms = {one: self._missing_ms.get(one, now_ms) for one in suspects}
        for one in dead:
            await self._judge(one)

    async def _newcomers(self) -> bool:
        """Whether somebody has registered who was not seen yet."""
        now = time.monotonic()
        if now - self._asked_at >= NEWCOMERS_S:
            self._asked_at = now
            found = await self._store.registered()
            unseen = frozenset(found - self._evidence.known.keys())
            fresh, self._unseen = unseen - self._unseen, unseen
            return bool(fresh) or (bool(unseen) and now - self._listed_at >= UNSEEN_S)
        return False

    async def _all_there(self) -> bool:
        """Whether each incarnation still has the connection by which it is asked for."""
        asked: dict[str, list[int]] = {}
        for connections in self._evidence.known.values():
            name, number = min(connections)
            asked.setdefault(name, []).append(number)
        for name, numbers in asked.items():
            text = await self._store.executor.on_primary(
                name, "CLIENT", "LIST", "ID", *map(str, numbers)
            )
            if len(list(_named(text))) < len(numbers):
                return False
        return True

    async def _list(self, *which: str) -> dict[str, Any]:
        """What every primary has; raises when one does not answer."""
        return await self._store.executor.on_every_primary("CLIENT", "LIST", *which)

    async def _judge(self, incarnation: str) -> None:
        """Evict an incarnation whose connections are gone, unless it has given a sign of life, or
        has said farewell."""
        since_ms = self._missing_ms.get(incarnation, 0)
        self._evidence.forget(incarnation)
        renewed_ms = await self._store.renewed_at(incarnation)
        if renewed_ms is None or renewed_ms >= since_ms:
            return
        if not await self._store.evict(incarnation, why=WHY):
            return  # Nobody waits for it.
        count = await self._store.bury(incarnation, why=WHY)
        self._log.warning(
            "warning", code="worker_evicted", worker=incarnation, sessions=count, text=WHY
        )

    async def _can_see(self) -> bool:
        """Whether a connection of this process is shown, with its name, on every primary."""
        executor = self._store.executor
        if executor.plain_scripts:
            return False
        while True:
            try:
                async with asyncio.timeout(ANSWER_S):
                    found = await self._list("TYPE", "normal")
            except (StoreUnavailable, TimeoutError):
                await asyncio.sleep(LOOK_S)
            except (ServerUnfit, ResponseError):
                return False
            else:
                mine = self._incarnation
                return all(any(who == mine for _, who in _named(text)) for text in found.values())


def _named(text: bytes) -> Iterator[tuple[int, str]]:
    """Number and incarnation of each connection of a worker."""
    for number, name in _LINE.findall(text):
        yield int(number), name.decode()

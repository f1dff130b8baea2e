"""What the requests of one process have taken of the limits of their models.

What was let through is extended while it runs and given back when it has ended, so a crash keeps
others waiting for no longer than `SPAN_MS`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Coroutine
from typing import Any, Final

from changeover_shared._store.lease_store import LeaseStore
from changeover_shared._store.records import Admission, Asked, Bucket
from changeover_worker._turn.retry import LONGEST_WISH_MS

SPAN_MS: Final = 30_000
"""For how long a request counts as running after its worker was last heard of."""
EXTEND_S: Final = 10.0
"""How often a worker is heard of."""
AT_ONCE: Final = 1000
"""The most requests that one call extends."""


class Limiter:
    """One object for all sessions of a process. Tasks of one event loop use it."""

    def __init__(self, store: LeaseStore) -> None:
        self._store = store
        self._running: dict[str, Asked] = {}
        self._keeping: asyncio.Task[None] | None = None
        self._telling: set[asyncio.Task[None]] = set()

    async def ask(self, asked: Asked) -> Admission:
        """Take what a request needs, or a place in the line for it. Waits while Redis is away."""
        try:
            answer = await self._store.ask_limit(asked, span_ms=SPAN_MS, longest_ms=LONGEST_WISH_MS)
        except asyncio.CancelledError:
            self._tell(self._store.refund_limit(asked))
            raise
        if not answer.wait_ms:
            self._running[asked.request] = asked
            if self._keeping is None:
                self._keeping = asyncio.get_running_loop().create_task(self._keep())
        return answer

    async def settle(self, asked: Asked, *, tokens: int, took_ms: int) -> None:
        """Give back what a request that has ended has taken."""
        self._ended(asked)
        telling = self._store.settle_limit(asked, tokens=tokens, took_ms=took_ms)
        await asyncio.shield(self._tell(telling))

    async def refund(self, asked: Asked) -> None:
        """Give back what a request has taken that was not sent."""
        self._ended(asked)
        await asyncio.shield(self._tell(self._store.refund_limit(asked)))

    async def hold(self, asked: Asked, span_ms: int) -> None:
        """Let nobody ask a model for a while: its provider has answered this request so."""
        holding = self._store.hold_limit(
            asked.buckets[-1], asked.request, span_ms=min(span_ms, LONGEST_WISH_MS)
        )
        await asyncio.shield(self._tell(holding))

    def leave(self, asked: Asked) -> None:
        """Give a place back that is not needed any more."""
        self._tell(self._store.leave_limit(asked))

    def _ended(self, asked: Asked) -> None:
        self._running.pop(asked.request, None)
        if not self._running and self._keeping is not None:
            self._keeping.cancel()
            self._keeping = None

    def _tell(self, telling: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Say something that goes on although whoever said it is cancelled."""
        task = asyncio.get_running_loop().create_task(telling)
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)
        return task

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(EXTEND_S)
            await self.extend()

    async def extend(self) -> None:
        """Let everything that runs here run on."""
        together: dict[tuple[Bucket, ...], list[str]] = defaultdict(list)
        for request, asked in self._running.items():
            together[asked.buckets].append(request)
        for buckets, requests in together.items():
            for start in range(0, len(requests), AT_ONCE):
                some = requests[start : start + AT_ONCE]
                await self._store.extend_limit(buckets, some, span_ms=SPAN_MS)

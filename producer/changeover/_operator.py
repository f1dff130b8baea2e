"""The operator: a client that also looks at the fleet."""

from __future__ import annotations

from datetime import timedelta

from changeover._client import Client
from changeover._explain import Explanation, explain
from changeover._purge import purge
from changeover_shared._identifiers import identifier, name
from changeover_shared._results import Purged, WorkerInfo
from changeover_shared._units import Duration, milliseconds


class Operator(Client):
    """A client that also looks at workers and says why sessions wait. Reads Redis only: a dead
    or busy worker cannot hide anything."""

    async def workers(self) -> tuple[WorkerInfo, ...]:
        """Every registered worker by name; `silent` once it has missed its renewals."""
        store = await self._opened()
        late = self._settings.renew * 2
        now_ms = await store.now_ms()
        seen = [_judged(worker, now_ms, late) for worker in await store.workers()]
        return tuple(sorted(seen, key=lambda worker: (worker.worker, worker.started_at_ms)))

    async def reroute(self, session: str, queue: str) -> bool:
        """Let a session wait in another queue from now on; False when there is none that could.

        Raises `SessionHeld` while a worker holds it. May be repeated.
        """
        session_id = identifier(session, field="session")
        store = await self._opened()
        return await store.upkeep.reroute(session_id, name(queue, field="queue"))

    async def purge(
        self,
        *,
        closed_for: Duration | None = None,
        idle_for: Duration | None = None,
        dry_run: bool = False,
    ) -> Purged:
        """Delete sessions that were closed, or idle, for so long, and forget settled receipts and
        tombstones that the deduplication window has passed by.

        Without a span no session is deleted. May be stopped and repeated at any time.
        """
        store = await self._opened()
        spans = {
            "closed": None if closed_for is None else milliseconds(closed_for, field="closed_for"),
            "idle": None if idle_for is None else milliseconds(idle_for, field="idle_for"),
        }
        return await purge(store, spans, dry_run=dry_run)

    async def explain(self, session: str) -> Explanation:
        """Say why a session is, or is not, running, and what to do. Raises `UnknownSession`."""
        snapshot = await self._snapshot(session)
        store = await self._opened()
        backlog = await store.route_backlog(snapshot.session_id, snapshot.head.route)
        return explain(snapshot, await self.workers(), backlog, await store.now_ms())


def _judged(worker: WorkerInfo, now_ms: int, late: timedelta) -> WorkerInfo:
    if now_ms - worker.renewed_at_ms <= late / timedelta(milliseconds=1):
        return worker
    return worker.model_copy(update={"state": "silent"})

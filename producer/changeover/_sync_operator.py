# Written by tools/generate_sync.py from _operator.py: change that file instead.
"""The operator: a client that also looks at the fleet."""

from __future__ import annotations

from datetime import timedelta

from changeover._explain import Explanation, explain
from changeover._sync_client import SyncClient
from changeover_shared._results import WorkerInfo


class SyncOperator(SyncClient):
    """A client that also looks at workers and says why sessions wait. Reads Redis only: a dead
    or busy worker cannot hide anything."""

    def workers(self) -> tuple[WorkerInfo, ...]:
        """Every registered worker by name; `silent` once it has missed its renewals."""
        store = self._opened()
        late = self._settings.renew * 2
        now_ms = store.now_ms()
        seen = [_judged(worker, now_ms, late) for worker in store.workers()]
        return tuple(sorted(seen, key=lambda worker: (worker.worker, worker.started_at_ms)))

    def explain(self, session: str) -> Explanation:
        """Say why a session is, or is not, running, and what to do. Raises `UnknownSession`."""
        snapshot = self._snapshot(session)
        store = self._opened()
        backlog = store.route_backlog(snapshot.session_id, snapshot.head.route)
        return explain(snapshot, self.workers(), backlog, store.now_ms())


def _judged(worker: WorkerInfo, now_ms: int, late: timedelta) -> WorkerInfo:
    if now_ms - worker.renewed_at_ms <= late / timedelta(milliseconds=1):
        return worker
    return worker.model_copy(update={"state": "silent"})

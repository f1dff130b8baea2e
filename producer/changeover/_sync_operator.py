# Written by tools/generate_sync.py from _operator.py: change that file instead.
"""The operator: a client that also looks at the fleet."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator

from changeover._explain import explain
from changeover._explanation import Explanation
from changeover._fleet_health import judged
from changeover._glance import Glance
from changeover._hindrances import on_a_replica
from changeover._pages import checked_limit, place_before
from changeover._report import Report
from changeover._submission import checked_reason
from changeover._sync_client import SyncClient
from changeover._sync_deep import Progress
from changeover._sync_doctor import examine
from changeover._sync_drain import chosen, drain, evict
from changeover._sync_payload_keys import payload_keys
from changeover._sync_purge import purge, spans
from changeover._sync_queues import read_queues
from changeover._sync_redrive import Asked, list_quarantined, redrive_all, redrive_named
from changeover._sync_watch import SyncWatch
from changeover_shared._errors import Invalid, StoreUnavailable
from changeover_shared._identifiers import identifier, name
from changeover_shared._results import (
    DrainProgress,
    Evicted,
    Page,
    Pause,
    PayloadKey,
    Purged,
    Quarantined,
    QueueInfo,
    Redriven,
    WorkerInfo,
)
from changeover_shared._server.url import parse_url, redis_url
from changeover_shared._store.keys import queue_of
from changeover_shared._store.records import Drop
from changeover_shared._store.sync_executor import SyncExecutor
from changeover_shared._units import Duration, duration, milliseconds


class SyncOperator(SyncClient):
    """A client that also looks at workers and says why sessions wait. Reads Redis only: a dead
    or busy worker cannot hide anything."""

    def workers(self) -> tuple[WorkerInfo, ...]:
        """Every registered worker by name; `silent` once it has missed its renewals."""
        store = self._opened()
        return judged(store.workers(), store.now_ms(), self._settings)

    def drain(
        self,
        worker: str | None = None,
        *,
        build: str | None = None,
        grace: Duration | None = None,
    ) -> Iterator[DrainProgress]:
        """Have a worker, all of a build, or all that there are hand off what they hold, and stop.

        Answers with each worker once it has been told (`asked`), then with whatever changes, until
        each is `drained`, `silent` or `gone`; who stops to listen leaves the drain going on. A
        worker is named as `workers` does, or by its incarnation; one that starts under the same
        name afterwards is not meant. `grace` is how long to wait for step boundaries, by default
        what each worker was told; said again, a shorter one counts. An outage of Redis is ridden
        out for 30 s. Raises `UnknownWorker`, `Invalid`, and `StoreUnavailable`: who was told before
        stops all the same.
        """
        if worker is not None and build is not None:
            raise Invalid(field="build", reason="name a worker or a build, not both")
        grace_ms = None if grace is None else milliseconds(grace, field="grace")
        return self._drain(worker, build, grace_ms)

    def _drain(
        self, worker: str | None, build: str | None, grace_ms: int | None
    ) -> Generator[DrainProgress]:
        found = chosen(self.workers(), worker, build)
        yield from drain(self._opened(), found, grace_ms, self._settings)

    def evict(self, worker: str) -> Evicted:
        """Declare a worker dead: what it holds goes on elsewhere now, as after a crash.

        Harmless if it lives: its writes are refused, and it stops as soon as it hears of it; only
        tools that it has started may run to their end while others run them again, if they are
        `pure` or `idempotent`. Raises `UnknownWorker`, `Invalid` when the name fits several
        incarnations, and `StoreUnavailable`: then repeat it.
        """
        return evict(self._opened(), self.workers(), worker)

    def queues(self) -> tuple[QueueInfo, ...]:
        """Every queue that has sessions, workers, or is paused: what waits, runs and stands still.

        Reads a little of each session: some seconds for a hundred thousand.
        """
        return read_queues(self._opened(), self.workers())

    def watch(self, *, every: Duration = "1s") -> Iterator[Glance]:
        """Look at the fleet, at once and then once per `every`, for ever: workers, queues, rates.

        Reads sizes, never a session, so it costs Redis the same however many there are. Some of it
        is up to five seconds old, queues without workers up to a minute. Raises `Invalid` at once;
        an iteration raises `StoreUnavailable`, and the next call of `watch` begins anew.
        """
        pause_s = duration(every, field="every").total_seconds()
        if pause_s <= 0:
            raise Invalid(field="every", reason="it must be more than nothing")
        return self._watch(pause_s)

    def _watch(self, pause_s: float) -> Generator[Glance]:
        watch = SyncWatch(self._opened(), self._settings)
        while True:
            yield watch.look()
            time.sleep(pause_s)

    def pause(self, queue: str, *, reason: str = "", by: str = "") -> None:
        """Have no worker take a session of a queue until `resume`. Turns that run go on to their
        end; no further one begins, and what is handed off or parked meanwhile waits.

        Raises `StoreUnavailable` when it may not have reached every partition. May be repeated.
        """
        queue = name(queue, field="queue")
        why, who = checked_reason(reason), checked_reason(by, field="by")
        store = self._opened()
        said = Pause(by=who, reason=why, since_ms=store.read_time())
        store.upkeep.pause(queue, said.model_dump_json())

    def resume(self, queue: str) -> bool:
        """Let workers take sessions of a queue again, at once; False when it was not paused.

        Raises `StoreUnavailable` when it may not have reached every partition. May be repeated.
        """
        queue = name(queue, field="queue")
        store = self._opened()
        paused = any(queue in where for where in store.upkeep.paused())
        store.upkeep.pause(queue, "")
        return paused

    def reroute(self, session: str, queue: str) -> bool:
        """Let a session wait in another queue from now on; False when there is none that could.

        Raises `SessionHeld` while a worker holds it. May be repeated.
        """
        session_id = identifier(session, field="session")
        store = self._opened()
        return store.upkeep.reroute(session_id, name(queue, field="queue"))

    def quarantined(
        self, *, queue: str | None = None, cursor: str | None = None, limit: int = 100
    ) -> Page[Quarantined]:
        """Sessions that are stopped until an operator acts, the latest first, and why."""
        place, most = place_before(cursor), checked_limit(limit)
        wanted = None if queue is None else name(queue, field="queue")
        return list_quarantined(self._opened(), wanted, place, most)

    def quarantine(self, session: str, *, reason: str, by: str = "") -> bool:
        """Stop a session now, until it is redriven; False when it is stopped already.

        Its turn stays open and what waits is kept. A worker that holds it is not asked: its next
        write is refused, and a tool that it has started may run to its end. Raises
        `UnknownSession`, `Closed`, `Deleted`.
        """
        session_id, why = identifier(session, field="session"), checked_reason(reason)
        if not why.strip():
            raise Invalid(field="reason", reason="say why, for those who find it stopped")
        who = checked_reason(by, field="by")
        store = self._opened()
        return store.quarantine.stop(session_id, reason=why, by=who)

    def redrive(
        self,
        sessions: Iterable[str] | None = None,
        *,
        queue: str | None = None,
        drop_input: bool = False,
        drop_all: bool = False,
        by: str = "",
        dry_run: bool = False,
    ) -> Iterator[Redriven]:
        """Let quarantined sessions try again, with all their attempts: the named ones, or those of
        a queue, or all. One answer each; what goes wrong with one stops no other.

        With `drop_input` what its turn has taken is dead-lettered and the turn ends, or without a
        turn the oldest message; with `drop_all` everything that is open. The transcript is left as
        it is. A `dry_run` changes nothing and answers `would_redrive` with what would be dropped.
        Raises `Invalid` before the first.
        """
        if drop_input and drop_all:
            raise Invalid(field="drop_all", reason="give drop_input or drop_all, not both")
        if sessions is not None and (
            isinstance(sessions, str) or not isinstance(sessions, Iterable)
        ):
            raise Invalid(field="sessions", reason=f"{sessions!r:.80} is not several ids")
        if sessions is not None and queue is not None:
            raise Invalid(field="queue", reason="name sessions or a queue, not both")
        wanted = None if queue is None else name(queue, field="queue")
        named = None if sessions is None else [identifier(s, field="session") for s in sessions]
        drop: Drop = "all" if drop_all else "input" if drop_input else "nothing"
        who = checked_reason(by, field="by")
        return self._redrive(named, wanted, Asked(drop, who, dry_run))

    def _redrive(
        self, named: list[str] | None, queue: str | None, asked: Asked
    ) -> Generator[Redriven]:
        store = self._opened()
        if named is None:
            for one in redrive_all(store, queue, asked):
                yield one
        else:
            for one in redrive_named(store, named, asked):
                yield one

    def purge(
        self,
        *,
        closed_for: Duration | None = None,
        idle_for: Duration | None = None,
        dry_run: bool = False,
    ) -> Purged:
        """Delete sessions that were closed, or idle, for so long; trim those that hold more than is
        kept; forget settled receipts and tombstones that the deduplication window has passed by.

        A span that is not given is that of the settings (`CHANGEOVER_CLOSED_TTL`, 30 days, and
        `CHANGEOVER_IDLE_TTL`, never); `"never"` deletes none. May be stopped and repeated at any
        time.
        """
        ages = spans(self._settings, closed_for, idle_for)
        store = self._opened()
        return purge(store, ages, dry_run=dry_run)

    def payload_keys(self) -> tuple[PayloadKey, ...]:
        """What each payload key has encrypted of what is stored, and what is not encrypted: a key
        that is not named may be dropped. Reads everything, in pages."""
        return payload_keys(self._opened())

    def explain(self, session: str) -> Explanation:
        """Say why a session is, or is not, running, and what to do. Raises `UnknownSession`.

        Where the server is a replica, which is not read, that is all it says.
        """
        try:
            snapshot = self._snapshot(session)
        except StoreUnavailable as error:
            if not error.reason.startswith("READONLY"):
                raise
            return on_a_replica(session)
        store = self._opened()
        backlog = store.route_backlog(snapshot.session_id, snapshot.head.route)
        paused = store.pause_of(snapshot.session_id, queue_of(snapshot.head.route))
        return explain(
            snapshot,
            self.workers(),
            backlog,
            store.now_ms(),
            paused=paused,
            server=store.server_of(snapshot.session_id),
            refusals=store.refusals_of(snapshot.session_id),
        )

    def doctor(self, *, deep: bool = False, progress: Progress | None = None) -> Report:
        """Look at the server and at the fleet on it: what is wrong, and what to type.

        With `deep`, every key and every session as well: minutes for a large fleet, in bounded
        memory; `progress` is told how many sessions of how many have been looked at. Reads only,
        and does not join the fleet: where there is none, none is created. Raises
        `StoreUnavailable`.
        """
        url = redis_url(self._url, self._settings)
        executor = SyncExecutor.connect(url)
        try:
            return examine(executor, parse_url(url), self._settings, deep=deep, told=progress)
        finally:
            executor.close()

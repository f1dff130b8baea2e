"""The sessions that a process runs: one task each, from its grant to its end."""

from __future__ import annotations

import asyncio
import time
from functools import partial

from structlog.typing import FilteringBoundLogger

from changeover_shared._errors import ChangeoverError, LeaseLost
from changeover_shared._identifiers import partition_of
from changeover_shared._store.keys import queue_of
from changeover_shared._store.lease_store import LeaseStore
from changeover_shared._store.records import Grant
from changeover_shared._words import GiveUp
from changeover_worker._process.activity import Activity
from changeover_worker._process.keeper import LeaseKeeper, trust
from changeover_worker._process.permits import Permits
from changeover_worker._process.slots import Slots
from changeover_worker._session.held import Drain, Held
from changeover_worker._session.runner import RunEnd, SessionRunner


class Sessions:
    """Starts a task per grant, and sees each of them off."""

    def __init__(
        self,
        runner: SessionRunner,
        store: LeaseStore,
        keeper: LeaseKeeper,
        slots: Slots,
        permits: Permits,
        activity: Activity,
        *,
        margin_s: float,
        log: FilteringBoundLogger,
    ) -> None:
        self._runner = runner
        self._store = store
        self._keeper = keeper
        self._slots = slots
        self._permits = permits
        self._activity = activity
        self._margin_s = margin_s
        self._log = log
        self._tasks: dict[asyncio.Task[None], Held] = {}
        self._draining_since: float | None = None
        self.failed_turns = 0
        """How many turns have failed here."""

    @property
    def count(self) -> int:
        """How many sessions are held."""
        return len(self._tasks)

    def begin(self, grant: Grant, asked_at: float, solo: bool) -> None:
        """Run a session from its grant on; while draining, or when the answer came so late that
        the lease is not to be trusted any more, hand it back instead."""
        partition = partition_of(grant.lease.session_id, self._store.keys.partitions)
        believed = trust(asked_at, grant.remaining_ms, self._margin_s)
        queue = queue_of(grant.lease.route)
        held = Held(
            grant.lease,
            partition,
            trusted_until=believed,
            turn_ended=partial(self._activity.turn_ended, queue),
        )
        self._slots.take(held, solo=solo)
        self._activity.claimed(queue, takeover=bool(grant.lapsed))
        late = believed <= time.monotonic() or self._is_anothers(grant)
        if not late:
            self._keeper.add(held)
        self._log_grant(grant)
        work = self._hand_back if late or self._draining_since is not None else self._run
        task = asyncio.create_task(work(grant, held), name=f"session {grant.lease.session_id}")
        self._tasks[task] = held
        task.add_done_callback(self._end)

    def held_before(self, moment: float) -> list[Held]:
        """What has been held since before a moment of the monotonic clock, the oldest first."""
        found = [held for held in self._tasks.values() if held.since < moment]
        return sorted(found, key=lambda held: held.since)

    def drain(self) -> None:
        """Ask every session for a hand-off at its next step boundary."""
        self._draining_since = time.monotonic()
        for held in self._tasks.values():
            held.drain()

    def drain_now(self) -> None:
        """Ask every session for a hand-off without waiting for a boundary."""
        for held in self._tasks.values():
            held.drain_now()

    async def cancel(self) -> None:
        """Stop what does not end by itself; their leases are left to an eviction."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, grant: Grant, held: Held) -> None:
        end = await self._runner.run(grant, held)
        kept = self._keeper.remove(held)
        self.failed_turns += end.failed_turns
        self._log_end(held, end, kept=kept)
        await self._permit_no_more(grant)

    async def _hand_back(self, grant: Grant, held: Held) -> None:
        await self._store.give_up(grant.lease, GiveUp.HAND_OFF)
        await self._permit_no_more(grant)

    async def _permit_no_more(self, grant: Grant) -> None:
        lease = grant.lease
        await self._permits.give_back(self._store, lease.nonce, [lease.session_id])

    def _is_anothers(self, grant: Grant) -> bool:
        """Whether the session was deleted and created anew for another tenant since its permit."""
        return self._permits.tenant_of(grant.lease) not in (None, grant.head.tenant)

    def _end(self, task: asyncio.Task[None]) -> None:
        held = self._tasks.pop(task)
        self._keeper.remove(held)
        self._permits.forget(held.lease.nonce, [held.lease.session_id])
        self._slots.give_back(held)
        self._activity.released(queue_of(held.lease.route))
        if not task.cancelled() and (error := task.exception()) is not None:
            session = held.lease.session_id
            self._log.error("warning", code="session_crashed", session=session, exc_info=error)

    def _log_grant(self, grant: Grant) -> None:
        if grant.lapsed:
            return  # The runner says `session_taken`, once it has read where it stopped.
        now_ms = self._store.clock.now_ms()
        inputs = grant.work.open_inputs(now_ms)
        self._log.info(
            "session_claimed",
            session=grant.lease.session_id,
            queue=queue_of(grant.lease.route),
            fence=grant.lease.fence,
            waited_ms=_waited(grant, now_ms),
            inbox=len(inputs),
        )

    def _log_end(self, held: Held, end: RunEnd, *, kept: bool) -> None:
        session, fence = held.lease.session_id, held.lease.fence
        if end.how == "handed_off":
            self._log.info(
                "session_handed_off",
                session=session,
                to_boundary=held.drain_level is Drain.AT_BOUNDARY,
                ms=round((time.monotonic() - (self._draining_since or time.monotonic())) * 1000),
            )
        elif end.how == "lost":
            # What the keeper still kept was found out by a write.
            script = {"script": held.refused} if kept else {}
            self._log.warning(
                "write_refused" if kept else "lease_lost",
                **script,
                word=end.error.code if isinstance(end.error, ChangeoverError) else "",
                session=session,
                fence=fence,
                current=end.error.current if isinstance(end.error, LeaseLost) else None,
            )


def _waited(grant: Grant, now_ms: int) -> int:
    """How long the oldest input that may run has waited."""
    due = {one.n: one.due_ms for one in grant.work.open_inputs(now_ms)}
    since = [max(entry.accepted_ms, due[entry.n]) for entry in grant.inbox if entry.n in due]
    return max(0, now_ms - min(since)) if since else 0

# Written by tools/generate_sync.py from store.py: change that file instead.
"""The producer's side of the store: submit, control and read.

A request that may be granted carries a not-after time on Redis's clock. A refusal counts only
once no earlier attempt of the same request can run any more, so "no" stays no.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from redis.exceptions import ResponseError

from changeover_shared._errors import (
    ChangeoverError,
    Invalid,
    PayloadError,
    ServerUnfit,
    StoreUnavailable,
)
from changeover_shared._events import Event
from changeover_shared._identifiers import new_submission_id
from changeover_shared._policies import ENQUEUE
from changeover_shared._results import Pause, TranscriptItem, TurnRecord, WorkerInfo
from changeover_shared._settings import Durability, Settings
from changeover_shared._store import decode, requests
from changeover_shared._store.attempts import Answer, Attempts
from changeover_shared._store.clock import ServerClock, time_ms
from changeover_shared._store.keys import Keys, PartitionKeys
from changeover_shared._store.payloads import SessionPayloads
from changeover_shared._store.records import (
    CancelAnswer,
    InboxEntry,
    NoTurn,
    Pulse,
    Refusals,
    Snapshot,
    SubmissionState,
    Submit,
    Submitted,
)
from changeover_shared._store.replication import facts_in
from changeover_shared._store.sync_agent_policies import SyncAgentPolicies
from changeover_shared._store.sync_eviction import SyncEviction
from changeover_shared._store.sync_executor import SyncExecutor
from changeover_shared._store.sync_fleet import SyncFleet
from changeover_shared._store.sync_gauges import SyncGauges
from changeover_shared._store.sync_orders import SyncOrders
from changeover_shared._store.sync_quarantine import SyncQuarantine
from changeover_shared._store.sync_schedules import SyncSchedules
from changeover_shared._store.sync_upkeep import SyncUpkeep
from changeover_shared._words import Status

ROUTES_KEPT = 10_000
"""How many sessions' routes are remembered, for those that wait elsewhere than asked."""
ATTEMPT_S = 2.5
SPARE = 4
"""How many sessions more than its share each partition is asked for when all are listed."""


class SyncStore:
    """What a producer may do. Safe to share; every write may be repeated with the same id."""

    def __init__(self, fleet: SyncFleet) -> None:
        self.settings = fleet.settings
        self._fleet = fleet
        self.quarantine = SyncQuarantine(fleet)
        """Stops sessions, and lets them go on."""
        self.eviction = SyncEviction(fleet)
        """Declares incarnations dead."""
        self.orders = SyncOrders(fleet)
        """Tells incarnations to stop."""
        self.upkeep = SyncUpkeep(fleet)
        """Ends, moves and forgets sessions."""
        self.gauges = SyncGauges(fleet)
        """Counts what waits and runs."""
        self.schedules = SyncSchedules(fleet)
        """Messages that are sent again and again."""
        self._policies = SyncAgentPolicies(fleet)
        self._routes: dict[str, str] = {}

    @classmethod
    def open(cls, url: str, settings: Settings) -> SyncStore:
        """Connect and join the fleet. Raises `SetupError`, `Invalid`, `StoreUnavailable`."""
        executor = SyncExecutor.connect(url, timeout_s=ATTEMPT_S)
        try:
            return cls(SyncFleet.join(executor, settings))
        except BaseException:
            executor.close()
            raise

    @property
    def keys(self) -> Keys:
        """The fleet's keys."""
        return self._fleet.keys

    @property
    def clock(self) -> ServerClock:
        """Redis's time, estimated from replies."""
        return self._fleet.clock

    def close(self) -> None:
        """Close every connection."""
        self._fleet.executor.close()

    def submit(self, asked: Submit, *, timeout_s: float = 5.0) -> Submitted | NoTurn:
        """Accept one submission durably, and ring for it.

        Raises `Busy`, `Closed`, `Deleted`, `UnknownSession`, `IdReused`, `IdExpired`,
        `NotWaiting`, `AlreadyDecided`, `TooLarge`, `NotDurable`, and `StoreUnavailable` (outcome
        unknown).
        """
        answer = (self.submit_all([asked], timeout_s=timeout_s))[0]
        if isinstance(answer, ChangeoverError):
            raise answer
        return answer

    def submit_all(self, batch: Sequence[Submit], *, timeout_s: float = 5.0) -> list[Answer]:
        """Accept several submissions in one pipeline; one answer each, in order.

        Submissions of one session keep their order: each is written after the one before.
        """
        attempt = Attempts(batch, time.monotonic() + timeout_s)
        while True:
            try:
                self._try(attempt)
            except Invalid:
                # Closed meanwhile: an earlier attempt may have been accepted, and is not denied.
                if not attempt.repeated:
                    raise
                attempt.give_up()
            if not attempt.open:
                break
            if attempt.late():
                attempt.give_up()
                break
            time.sleep(attempt.pause())
        self._ring(attempt)
        return attempt.answers

    def cancel(
        self, session_id: str, submission_id: str, *, timeout_s: float = 5.0
    ) -> CancelAnswer:
        """Take a waiting submission back. Raises `StoreUnavailable`."""
        request_id = new_submission_id()
        route = self._routes.get(session_id) or self._route(session_id)
        deadline = time.monotonic() + timeout_s
        while True:
            ask = partial(
                requests.control,
                self.keys,
                session_id,
                request_id=request_id,
                target=submission_id,
                route=route,
            )
            # A copy that went to another route was refused there, whenever it runs.
            words = ("CANCELLED", "ROUTE")
            reply = self._fleet.final(ask, granted=words, deadline=deadline)
            if reply[0] != "ROUTE":
                return decode.cancelled(reply)
            route = self._remember(session_id, reply[1].decode())

    def submissions(self, named: Sequence[tuple[str, str]]) -> list[SubmissionState | None]:
        """What became of (session, submission) pairs; None for unknown ones."""
        values = self._fleet.executor.commands(
            [("HGET", self._key(session, "receipts"), submission) for session, submission in named]
        )
        return [
            decode.receipt(submission, value)
            for (_, submission), value in zip(named, values, strict=True)
        ]

    def due_ms(self, session_id: str, n: int) -> int:
        """When an open submission may run, by its position; 0 for at once, or when it has ended."""
        found = self._fleet.executor.command("HGET", self._key(session_id, "work"), n)
        return decode.work([str(n).encode(), found]).waiting[0].due_ms if found else 0

    def snapshot(self, session_id: str) -> Snapshot | None:
        """A session as it stands; None when it is unknown."""
        return (self.snapshots([session_id]))[0]

    def snapshots(
        self, session_ids: Sequence[str], *, strict: bool = True
    ) -> list[Snapshot | None]:
        """Several sessions, read in one pipeline.

        Raises `PayloadError` for one that cannot be read here; if not `strict`, what is encrypted
        of that one is left out instead.
        """
        commands: list[tuple[str | int, ...]] = []
        for session_id in session_ids:
            partition = self.keys.of(session_id)
            commands += [
                ("HGETALL", partition.session(session_id, "head")),
                ("HGETALL", partition.session(session_id, "work")),
                ("HGET", partition.named("owners"), session_id),
                ("ZSCORE", partition.named("leases"), session_id),
                ("XREVRANGE", partition.session(session_id, "checkpoint"), "+", "-", "COUNT", 1),
            ]
        values = self._fleet.executor.commands(commands)
        return [
            _snapshot(self._payloads(session_id), values[i * 5 : i * 5 + 5], strict=strict)
            for i, session_id in enumerate(session_ids)
        ]

    def pulse(self, session_id: str) -> Pulse | None:
        """Where a session's journal stands: what a follower asks often. None when it is unknown."""
        names = ("status", "seq", "first_seq", "epoch", "epoch_seq")
        return decode.pulse(
            self._fleet.executor.command("HMGET", self._key(session_id, "head"), *names)
        )

    def journal(self, session_id: str, *, after: int = 0, limit: int = 1000) -> tuple[Event, ...]:
        """Events with a number above `after`, oldest first."""
        return decode.events(
            self._fleet.executor.command(
                "XRANGE", self._key(session_id, "journal"), f"({after}-0", "+", "COUNT", limit
            ),
            self._payloads(session_id),
        )

    def journal_back(self, session_id: str, *, before: int | None, limit: int) -> tuple[Event, ...]:
        """Events with a number below `before`, newest first."""
        raw = self._back(session_id, "journal", before, limit)
        return decode.events(raw, self._payloads(session_id))

    def wait_journal(self, session_id: str, *, after: int, block_ms: int) -> tuple[Event, ...]:
        """Wait for events above `after`; empty when none came within `block_ms`."""
        found = self._fleet.executor.blocking(
            "XREAD",
            "COUNT",
            1000,
            "BLOCK",
            block_ms,
            "STREAMS",
            self._key(session_id, "journal"),
            f"{after}-0",
            block_s=block_ms / 1000,
        )
        return decode.events(found[0][1], self._payloads(session_id)) if found else ()

    def transcript_back(
        self, session_id: str, *, before: int | None, limit: int
    ) -> tuple[TranscriptItem, ...]:
        """Transcript items below `before`, newest first."""
        raw = self._back(session_id, "transcript", before, limit)
        return decode.transcript(raw, self._payloads(session_id))

    def turns_back(
        self, session_id: str, *, before: int | None, limit: int
    ) -> tuple[tuple[int, TurnRecord], ...]:
        """Finished turns with numbers below `before`, newest first."""
        raw = self._back(session_id, "turns", before, limit)
        return decode.turn_records(raw, self._payloads(session_id))

    def turns_of(self, named: Sequence[tuple[str, str]]) -> list[TurnRecord | None]:
        """The finished turns of (session, turn) pairs, read in one pipeline.

        None for one that runs, or that is not kept any more.
        """
        commands: list[tuple[str | int, ...]] = []
        for session_id, turn_id in named:
            entry = f"{turn_id.removeprefix('t_')}-0"
            commands.append(("XRANGE", self._key(session_id, "turns"), entry, entry))
        values = self._fleet.executor.commands(commands)
        records = (
            decode.turn_records(raw, self._payloads(session_id))
            for (session_id, _), raw in zip(named, values, strict=True)
        )
        return [found[0][1] if found else None for found in records]

    def inbox(self, session_id: str) -> tuple[InboxEntry, ...]:
        """The bodies of all submissions that have not ended."""
        return decode.inbox(
            self._fleet.executor.command("XRANGE", self._key(session_id, "inbox"), "-", "+"),
            self._payloads(session_id),
        )

    def catalogue(
        self, *, before: tuple[int, str] | None, limit: int, index: str = "sessions"
    ) -> tuple[tuple[int, str], ...]:
        """Sessions as (created_ms, id), newest first, below `before`, over all partitions; with
        `index="quarantine"` those that are stopped, by the time at which they were."""
        found: set[tuple[int, str]] = set()
        top: str | int = "+inf" if before is None else before[0]
        asked = dict.fromkeys(self.keys.all, top)
        count = limit // len(asked) + SPARE
        while True:
            lists = self._newest(asked, count, index)
            found.update(one for listed in lists for one in listed)
            older = (one for one in found if before is None or one < before)
            best = tuple(sorted(older, reverse=True)[:limit])
            # A partition that gave all it was asked for may hold more that belong to the best.
            asked = {
                partition: listed[-1][0]
                for partition, listed in zip(asked, lists, strict=True)
                if len(listed) == count and (len(best) < limit or listed[-1] > best[-1])
            }
            if not asked:
                return best
            # More each time: the tops repeat what was created in the same millisecond.
            count *= 2

    def workers(self) -> tuple[WorkerInfo, ...]:
        """What every registered incarnation last said of itself."""
        flat = self._fleet.executor.command("HGETALL", self.keys.workers)
        return tuple(sorted(decode.workers(flat), key=lambda worker: worker.incarnation))

    def route_backlog(self, session_id: str, route: str) -> tuple[int | None, int]:
        """How many sessions of its partition are ready before this one, and in all."""
        key = self.keys.of(session_id).ready(route)
        rank, size = self._fleet.executor.commands([("ZRANK", key, session_id), ("ZCARD", key)])
        return (None if rank is None else int(rank)), int(size)

    def pause_of(self, session_id: str, queue: str) -> Pause | None:
        """Why nothing of the queue is granted where the session lies; None: it is."""
        key = self.keys.of(session_id).named("meta")
        flat = self._fleet.executor.command("HGETALL", key)
        return decode.paused(flat).get(queue)

    def refusals_of(self, session_id: str) -> Refusals:
        """Why messages are refused where the session lies, whatever they say."""
        key = self.keys.of(session_id).named("meta")
        pressure, told = self._fleet.executor.command("HMGET", key, "pressure", "full")
        return decode.refused_at(pressure, told, self.now_ms())

    def server_of(self, session_id: str) -> dict[str, str]:
        """What the server that has the session says of itself (INFO); nothing where it may not be
        asked."""
        executor = self._fleet.executor
        if executor.plain_scripts:
            return {}
        name = executor.primary_of(self.keys.of(session_id).named("meta"))
        try:
            info: bytes = executor.on_primary(name, "INFO")
        except (ServerUnfit, ResponseError):
            return {}
        return facts_in(info)

    def now_ms(self) -> int:
        """Redis's time; asks once if nothing has been asked before."""
        return self.clock.now_ms() or self.read_time()

    def read_time(self) -> int:
        """Redis's time, asked for now."""
        now_ms = time_ms(self._fleet.executor.command("TIME"))
        self.clock.saw(now_ms)
        return now_ms

    def _newest(
        self, asked: Mapping[PartitionKeys, str | int], count: int, index: str
    ) -> list[list[tuple[int, str]]]:
        """From each partition, `count` sessions as (time, id) from a time downwards."""
        first = ("LIMIT", 0, count)
        values = self._fleet.executor.commands(
            [
                ("ZREVRANGEBYSCORE", key.named(index), top, "-inf", "WITHSCORES", *first)
                for key, top in asked.items()
            ]
        )
        return [
            [(int(float(score)), session.decode()) for session, score in decode.pairs(flat)]
            for flat in values
        ]

    def _payloads(self, session_id: str) -> SessionPayloads:
        return self._fleet.payloads.of(session_id)

    def _key(self, session_id: str, name: str) -> str:
        return self.keys.of(session_id).session(session_id, name)

    def _back(self, session_id: str, name: str, before: int | None, limit: int) -> Any:
        top = "+" if before is None else f"({before}-0"
        return self._fleet.executor.command(
            "XREVRANGE", self._key(session_id, name), top, "-", "COUNT", limit
        )

    def _route(self, session_id: str) -> str:
        found = self._fleet.executor.command("HGET", self._key(session_id, "head"), "route")
        return found.decode() if found else ""

    def _not_after(self, deadline: float) -> int:
        return self.now_ms() + max(1, round((deadline - time.monotonic()) * 1000))

    def _remember(self, session_id: str, route: str) -> str:
        if len(self._routes) >= ROUTES_KEPT:
            self._routes.pop(next(iter(self._routes)))
        self._routes[session_id] = route
        return route

    def _try(self, attempt: Attempts) -> None:
        """Ask once for everything that is still open."""
        asked = tuple(attempt.open)
        try:
            not_after = self._not_after(attempt.deadline)
            marks = self._fleet.marks(
                self.keys.of(attempt.batch[i].session_id)
                for i in asked
                if self._durability(attempt, i) != "memory"
            )
            asks = any(not attempt.batch[i].policy for i in asked)
            defaults = self._policies.read() if asks else None
            calls = [
                requests.submit(
                    self.keys,
                    self.settings,
                    attempt.batch[i],
                    route=self._routes.get(attempt.batch[i].session_id)
                    or attempt.batch[i].create.route,
                    not_after_ms=not_after,
                    digest=attempt.digest(i, self._fleet.payloads),
                    after=after,
                    defaults=defaults,
                )
                for i, after in attempt.in_order()
            ]
            replies = self._fleet.call_all(calls)
        except StoreUnavailable as error:
            attempt.lost(error)
            return
        for i, reply in zip(asked, replies, strict=True):
            word = reply[0] if isinstance(reply, list) else ""
            if isinstance(reply, list) and word == "ROUTE":
                self._remember(attempt.batch[i].session_id, reply[1].decode())
                attempt.repeat_at_once = True
            elif word == "ORDER" or (isinstance(reply, list) and attempt.was_plain(i, reply)):
                attempt.repeat_at_once = True
            else:
                attempt.take(i, reply, not_after, self.clock.now_ms())
        self._confirm(attempt, [i for i in asked if i in attempt.accepted], marks)

    def _confirm(
        self, attempt: Attempts, accepted: Sequence[int], marks: Mapping[PartitionKeys, str]
    ) -> None:
        """Wait until what was accepted is as safe as it asked for; what may be forgotten meanwhile
        is asked for again."""
        by_kind: dict[Durability, list[int]] = {}
        for i in accepted:
            by_kind.setdefault(self._durability(attempt, i), []).append(i)
        by_kind.pop("memory", None)
        for durability, group in by_kind.items():
            places = {i: self.keys.of(attempt.batch[i].session_id) for i in group}
            mine = {place: marks[place] for place in places.values()}
            found = self._fleet.confirm(mine, durability)
            for i, place in places.items():
                if not found[place].same_history:
                    attempt.reopen(i)
                elif not found[place].enough:
                    attempt.answers[i] = self._fleet.not_durable(
                        durability, found[place], attempt.batch[i].submission_id
                    )

    def _durability(self, attempt: Attempts, i: int) -> Durability:
        return attempt.batch[i].durability or self.settings.durability

    def _ring(self, attempt: Attempts) -> None:
        """Wake workers, and tell those whose turn is to stop. Only hints: a ring that is lost costs
        a second, not a session, and an alarm the time until the lease is renewed."""
        rung = {
            (answer.route, self.keys.of(attempt.batch[i].session_id).partition)
            for i, answer in attempt.accepted.items()
            if answer.status is Status.READY and answer.route
        }
        self._fleet.ring(sorted(rung))
        stopped = {
            self.keys.of(attempt.batch[i].session_id).partition
            for i, answer in attempt.accepted.items()
            if answer.status is Status.HELD and self._stops(attempt.batch[i], answer)
        }
        self._fleet.raise_alarm(sorted(stopped))

    def _stops(self, asked: Submit, answer: Submitted) -> bool:
        """Whether a submission stops the turn that it found."""
        wish = self._policies.known.get(answer.agent, ENQUEUE)
        return asked.cls == "ctl" or (asked.policy or wish.policy) in ("interrupt", "rollback")


def _snapshot(payloads: SessionPayloads, values: Sequence[Any], *, strict: bool) -> Snapshot | None:
    head_flat, work_flat, owner, lease_ms, newest = values
    try:
        found = decode.head(head_flat, payloads)
        checkpoint = decode.checkpoint(newest, payloads)
    except PayloadError:
        if strict:
            raise
        found, checkpoint = decode.head(head_flat), None
    if found is None:
        return None
    return Snapshot(
        session_id=payloads.session_id,
        head=found,
        work=decode.work(work_flat),
        owner=owner.decode() if owner else "",
        lease_ms=int(float(lease_ms)) if lease_ms else 0,
        checkpoint=checkpoint,
    )

"""A small fleet of the store alone: producers and workers as tasks, misfortunes by a seed.

A worker does at each step what the seed says, also what it should not do: it writes under a lease
that it has given up, that has run out, or that was taken from it. All rights are the store's. When
its steps are used up it does as it should until nothing is open, however long the machine takes.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, Protocol

from changeover_shared._errors import ChangeoverError, LeaseError, StoreUnavailable
from changeover_shared._events import (
    ContextRolledBack,
    Delta,
    Event,
    Message,
    TurnAborted,
    TurnCompleted,
    TurnStarted,
)
from changeover_shared._policies import AnyPolicy, Debounce, wish_of
from changeover_shared._store.keys import route_of
from changeover_shared._store.lease_store import LeaseStore
from changeover_shared._store.records import (
    BatchGap,
    Commit,
    CommitRefused,
    Create,
    Grant,
    Head,
    Lease,
    NoTurn,
    SubmissionState,
    Submit,
    Submitted,
    Work,
)
from changeover_shared._store.sync_store import SyncStore
from changeover_shared._words import CommitKind, GiveUp, Next
from tests.support.history_recorder import Recorder

ROUTE = route_of("assistant")
POLICIES: Sequence[AnyPolicy] = (
    "enqueue", "steer", "join", "latest", "interrupt", "rollback", "reject",
    Debounce("5ms", max_wait="30ms"),
)  # fmt: skip
SESSIONS = tuple(f"s{i}" for i in range(6))
TTL_MS = 30_000
PATIENCE_S = 0.5
"""How long a producer asks for a final answer: a refusal behind a lost reply takes all of it."""
STEPS = 400
"""For how many steps a worker does as it likes."""
ROUNDS = 1_000
"""After so many rounds of what a worker should do, with nothing more to come, something hangs."""


class Producing(Protocol):
    """What a producer needs of a store."""

    async def submit(self, asked: Submit, *, timeout_s: float) -> Submitted | NoTurn: ...

    async def cancel(self, session_id: str, submission_id: str, *, timeout_s: float) -> object: ...

    async def submissions(
        self, named: Sequence[tuple[str, str]]
    ) -> list[SubmissionState | None]: ...


class InThreads:
    """The synchronous store, each call on a thread."""

    def __init__(self, store: SyncStore) -> None:
        self._store = store

    async def submit(self, asked: Submit, *, timeout_s: float) -> Submitted | NoTurn:
        return await asyncio.to_thread(self._store.submit, asked, timeout_s=timeout_s)

    async def cancel(self, session_id: str, submission_id: str, *, timeout_s: float) -> object:
        return await asyncio.to_thread(
            self._store.cancel, session_id, submission_id, timeout_s=timeout_s
        )

    async def submissions(self, named: Sequence[tuple[str, str]]) -> list[SubmissionState | None]:
        return await asyncio.to_thread(self._store.submissions, named)


def submission(session: str, id: str, chance: random.Random) -> Submit:
    """A message, or now and then an interrupt of what runs."""
    create = Create(ROUTE, "assistant")
    if chance.random() < 0.15:
        return Submit(session, id, f"d:{id}", "ctl", "", create, may_create=False)
    wish = wish_of(chance.choice(POLICIES))
    event = Message(text=id, submission_id=id)
    return Submit(
        session, id, f"d:{id}", "turn", id, create,
        policy=wish.policy, key=wish.key, quiet_ms=wish.quiet_ms, max_wait_ms=wish.max_wait_ms,
        delay_ms=chance.choice((0, 0, 0, 0, 5, 40)), event=event,
    )  # fmt: skip


def chosen_seed() -> int:
    """The seed of `SEED`, or a new one; printed, so that a failure can be had again."""
    seed = int(os.environ.get("SEED") or random.randrange(10**6))
    sys.stdout.write(f"SEED={seed}\n")
    return seed


async def produce(
    store: Producing, recorder: Recorder, name: str, chance: random.Random, count: int
) -> list[tuple[str, str]]:
    """Submit and cancel; what was not refused, as (session, id) pairs."""
    sent = []
    for i in range(count):
        session, id = chance.choice(SESSIONS), f"{name}:{i}"
        asked = submission(session, id, chance)
        try:
            answer = await store.submit(asked, timeout_s=PATIENCE_S)
        except StoreUnavailable:
            # Accepted or not: the history must fit either.
            sent.append((session, id))
            continue
        except ChangeoverError:
            recorder.refused(session, id)
            continue
        if isinstance(answer, NoTurn):
            recorder.refused(session, id)
            continue
        sent.append((session, id))
        if chance.random() < 0.2:
            with suppress(StoreUnavailable):
                await store.cancel(*chance.choice(sent), timeout_s=PATIENCE_S)
    return sent


class ClumsyWorker:
    """One worker, whose every act is the seed's."""

    def __init__(self, store: LeaseStore, name: str, chance: random.Random) -> None:
        self.store = store
        self.incarnation = f"{name}:0"
        self._chance = chance
        self._ids = itertools.count(1)
        self._held: list[_Hand] = []
        """Leases that it has, or had."""

    async def run(self, supplied: asyncio.Event, done: asyncio.Event) -> None:
        """Work until everything has ended, which cannot be before everything is `supplied`."""
        for _ in range(STEPS):
            if done.is_set():
                return
            if not self._held or self._chance.random() < 0.3:
                await self._claim()
            if self._held:
                await self._act(self._chance.choice(self._held))
            if self._chance.random() < 0.05:
                await self._expire(self._chance.choice(SESSIONS))
        rounds = 0
        while not done.is_set():
            assert rounds < ROUNDS, await self._left()
            rounds += supplied.is_set()
            try:
                await self._tidy_up()
            except StoreUnavailable:
                continue
            await asyncio.sleep(0.01)

    async def _claim(self) -> None:
        partition = self._chance.choice(self.store.keys.all).partition
        ready = await self._look(partition, solo=self._chance.random() < 0.5)
        if ready:
            chosen = self._chance.sample(ready, min(2, len(ready)))
            self._held += await self._take(partition, chosen)

    async def _look(self, partition: int, *, solo: bool) -> Sequence[str]:
        peeked = await self.store.peek(partition, [ROUTE], window=8, solo=solo)
        await self.store.reap(partition, (*peeked.expired, *peeked.due))
        return peeked.ready[0]

    async def _take(self, partition: int, ids: Sequence[str]) -> list[_Hand]:
        answers = await self.store.claim(
            partition, ROUTE, ids,
            incarnation=self.incarnation, nonce=f"{self._chance.getrandbits(128):032x}",
            ttl_ms=TTL_MS, max_step_ms=600_000, solo=True, max_attempts=10**6,
            not_after_ms=self.store.clock.now_ms() + 20_000,
        )  # fmt: skip
        return [_Hand(answer.lease) for answer in answers if isinstance(answer, Grant)]

    async def _tidy_up(self) -> None:
        """Take all that is ready and bring it to its end; what it held before it lets go."""
        await self.store.evict(self.incarnation)
        for at in self.store.keys.all:
            for solo in (False, True):
                ready = await self._look(at.partition, solo=solo)
                for hand in await self._take(at.partition, ready) if ready else ():
                    with suppress(LeaseError):
                        await self._finish(hand.lease)

    async def _finish(self, lease: Lease) -> None:
        held = True
        while held:
            asked = await self._planned(lease.session_id, self._end_of_turn)
            if asked is None:
                await self.store.give_up(lease, GiveUp.RELEASE)
                return
            answer = await self.store.commit(lease, asked)
            held = isinstance(answer, CommitRefused) or answer.held

    async def _left(self) -> str:
        """What is still open, in the store's own words."""
        lines = [f"{self.incarnation}: not everything has ended in {ROUNDS} rounds"]
        for session in SESSIONS:
            at = self.store.keys.of(session)
            head = await self.store.read_head(session)
            work = await self.store.read_work(session)
            owner = await self.store.executor.command("HGET", at.named("owners"), session)
            lines.append(f"{session}: {owner} {head and head.raw} {work}")
        return "\n".join(lines)

    async def _expire(self, session: str) -> None:
        """Let the session's lease have run out, whoever holds it."""
        leases = self.store.keys.of(session).named("leases")
        with suppress(StoreUnavailable):
            await self.store.executor.command("ZADD", leases, "XX", 1, session)

    async def _act(self, hand: _Hand) -> None:
        lease = hand.lease
        act = self._chance.choices(
            ("commit", "append", "again", "renew", "give up", "evict", "forget"),
            (50, 18, 16, 6, 4, 2, 4),
        )[0]
        try:
            match act:
                case "commit":
                    await self._commit(hand)
                case "append":
                    hand.batch += 1
                    hand.events = (Delta(text="x"),) * self._chance.randint(1, 3)
                    await self.store.append(lease, hand.batch, hand.events)
                case "again":
                    if hand.asked is not None:
                        await self.store.commit(lease, hand.asked)
                    if hand.events:
                        await self.store.append(lease, hand.batch, hand.events)
                case "renew":
                    partition = self.store.keys.of(lease.session_id).partition
                    await self.store.renew(partition, [lease], ttl_ms=TTL_MS)
                case "give up":
                    reason = self._chance.choice((GiveUp.HAND_OFF, GiveUp.RELEASE))
                    await self.store.give_up(lease, reason)
                case "evict":
                    await self.store.evict(self.incarnation)
                case _:
                    self._held.remove(hand)
        except (LeaseError, BatchGap, StoreUnavailable):
            # It goes on trying for a while, as a worker does that does not know yet.
            hand.refused += 1
            if hand.refused > 2:
                self._held.remove(hand)

    async def _commit(self, hand: _Hand) -> None:
        hand.asked = await self._planned(hand.lease.session_id, self._any_move)
        if hand.asked is None:
            await self.store.give_up(hand.lease, GiveUp.RELEASE)
        else:
            await self.store.commit(hand.lease, hand.asked)

    async def _planned(self, session: str, move: Callable[[Head, Work], Commit]) -> Commit | None:
        """What goes on from here: `move` in an open turn; None when there is nothing to do."""
        head = await self.store.read_head(session)
        work = await self.store.read_work(session)
        if head is None:
            return None
        if head.turn:
            return move(head, work)
        open_inputs = work.open_inputs(self.store.clock.now_ms())
        if not open_inputs:
            return None
        first = open_inputs[: self._chance.randint(1, len(open_inputs))]
        groups = {one.group for one in first} - {""}
        taken = [one for one in open_inputs if one in first or one.group in groups]
        turn = f"t_{head.turns + 1}"
        ids = tuple(one.submission_id for one in taken)
        return Commit(
            self._commit_id(), head.rev, turn, CommitKind.START, "begun",
            take=tuple(one.n for one in taken),
            events=(TurnStarted(turn_id=turn, submission_ids=ids),),
        )  # fmt: skip

    def _commit_id(self) -> str:
        return f"{self.incarnation}:{next(self._ids)}"

    def _any_move(self, head: Head, work: Work) -> Commit:
        """A step, the end, or what gives the turn back."""
        chance = self._chance
        if chance.random() < 0.4:
            step = (Delta(turn_id=head.turn, text="y"),)
            return Commit(
                self._commit_id(), head.rev, head.turn, CommitKind.STEP, "a step",
                progress=True, events=step, next=chance.choice((Next.HOLD, Next.RELEASE)),
            )  # fmt: skip
        if not head.ctl_turn and chance.random() < 0.15:
            return Commit(
                self._commit_id(), head.rev, head.turn, CommitKind.END, "given back",
                end="requeue", next=chance.choice((Next.HOLD, Next.AUTO, Next.RELEASE)),
            )  # fmt: skip
        return self._end_of_turn(head, work)

    def _end_of_turn(self, head: Head, work: Work) -> Commit:
        """The end that its control asks for: an abort, and of a rollback out of the context."""
        ids = tuple(one.submission_id for one in work.waiting if one.turn == head.turn)
        over: tuple[Event, ...] = (TurnCompleted(turn_id=head.turn, submission_ids=ids),)
        end: Literal["completed", "aborted"] = "completed"
        if head.ctl_turn:
            over, end = (TurnAborted(turn_id=head.turn, submission_ids=ids),), "aborted"
        if head.ctl_kind == "rollback":
            over = (ContextRolledBack(turn_id=head.turn, to=head.turn), *over)
        return Commit(
            self._commit_id(), head.rev, head.turn, CommitKind.END, "ended", end=end,
            progress=True, events=over,
            next=self._chance.choice((Next.HOLD, Next.AUTO, Next.RELEASE)),
        )  # fmt: skip


@dataclass(eq=False)
class _Hand:
    """A lease that a worker was granted, whatever has become of it."""

    lease: Lease
    batch: int = 0
    events: tuple[Event, ...] = ()
    """Its last batch."""
    refused: int = 0
    asked: Commit | None = None


async def run_fleet(
    producers: Sequence[tuple[Producing, Recorder]],
    workers: Sequence[LeaseStore],
    seed: int,
    *,
    count: int,
) -> list[tuple[str, str]]:
    """Submit `count` things from each producer, and work until all that was accepted has ended."""
    supplied, done = asyncio.Event(), asyncio.Event()

    async def supply() -> list[tuple[str, str]]:
        lists = await asyncio.gather(
            *(
                produce(store, recorder, f"p{i}", random.Random(f"{seed} p{i}"), count)
                for i, (store, recorder) in enumerate(producers)
            )
        )
        sent = [one for found in lists for one in found]
        supplied.set()
        while not await _all_ended(producers[0][0], sent):  # noqa: ASYNC110 - Redis knows
            await asyncio.sleep(0.01)
        done.set()
        return sent

    async with asyncio.TaskGroup() as tasks:
        for i, store in enumerate(workers):
            worker = ClumsyWorker(store, f"w{i}", random.Random(f"{seed} w{i}"))
            tasks.create_task(worker.run(supplied, done))
        supplying = tasks.create_task(supply())
    return supplying.result()


async def _all_ended(store: Producing, submissions: Sequence[tuple[str, str]]) -> bool:
    try:
        states = await store.submissions(submissions)
    except StoreUnavailable:
        return False
    return all(state is None or state.ending is not None for state in states)

"""Sessions on a fresh fakeredis, held and run the way a worker does it."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import fakeredis
from structlog.testing import CapturingLogger
from structlog.typing import FilteringBoundLogger

from changeover_shared._events import Event, Message
from changeover_shared._ops import InterruptOp, MessageOp, Op, class_of, digest, encode_op
from changeover_shared._policies import AnyPolicy, wish_of
from changeover_shared._results import TranscriptItem, TurnRecord
from changeover_shared._settings import Settings
from changeover_shared._store.clock import ServerClock
from changeover_shared._store.keys import route_of
from changeover_shared._store.records import Create, Grant, NoTurn, Submit, Submitted
from changeover_shared._words import Ending, Status
from changeover_worker._app import App
from changeover_worker._session.held import Held
from changeover_worker._session.runner import RunEnd, SessionRunner
from tests.support.fleet import Stores, fake_executor, small_settings, stores_on

ROUTE = route_of("bot")


class AheadClock(ServerClock):
    """A clock that a test sets ahead."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


@dataclass
class Bench:
    """One session `s` on a store of its own."""

    stores: Stores
    settings: Settings
    session: str = "s"
    log: Any = field(default_factory=CapturingLogger)
    jitter: float = 0.0
    """Which part of its longest pause a failed model step waits."""

    async def submit(
        self,
        asked: str | Op,
        id: str = "m1",
        *,
        turn: str = "",
        policy: AnyPolicy = "enqueue",
    ) -> Submitted:
        """Send a message or another op to the session."""
        op = MessageOp(text=asked) if isinstance(asked, str) else asked
        wish = wish_of(policy)
        event = Message(text=op.text, author=op.author) if isinstance(op, MessageOp) else None
        answer = await self.stores.producer.submit(
            Submit(
                session_id=self.session,
                submission_id=id,
                digest=digest(op),
                cls=class_of(op).value,
                body=encode_op(op),
                create=Create(route=ROUTE, agent="bot"),
                target=turn,
                event=event,
                policy=wish.policy,
                key=wish.key,
                quiet_ms=wish.quiet_ms,
                max_wait_ms=wish.max_wait_ms,
            )
        )
        assert not isinstance(answer, NoTurn), answer
        return answer

    async def interrupt(self, id: str = "i1", *, turn: str = "") -> Submitted | NoTurn:
        """Ask for the end of the running turn, or of the one that is named."""
        op = InterruptOp()
        return await self.stores.producer.submit(
            Submit(
                session_id=self.session,
                submission_id=id,
                digest=digest(op),
                cls="ctl",
                body=encode_op(op),
                create=Create(route="", agent=""),
                target=turn,
                may_create=False,
            )
        )

    async def claim(self, incarnation: str = "w:00000001") -> Grant:
        """Take the session; it must be ready."""
        (grant,) = await self.stores.worker.claim(
            self.partition,
            ROUTE,
            [self.session],
            incarnation=incarnation,
            nonce=secrets.token_hex(16),
            ttl_ms=30_000,
            max_step_ms=600_000,
            not_after_ms=self.stores.worker.clock.now_ms() + 5_000,
        )
        assert isinstance(grant, Grant), grant
        return grant

    @property
    def partition(self) -> int:
        """Where the session lives."""
        return self.stores.worker.keys.of(self.session).partition

    def hold(self, grant: Grant) -> Held:
        """What the keeper and the runner share of a grant."""
        return Held(grant.lease, self.partition, trusted_until=time.monotonic() + 30)

    def runner(self, app: App) -> SessionRunner:
        """A worker process's runner."""
        log: FilteringBoundLogger = self.log
        return SessionRunner(
            app, self.stores.worker, self.settings, log, jitter=lambda: self.jitter
        )

    async def run(self, app: App, incarnation: str = "w:00000001") -> RunEnd:
        """Claim the session and run it until it is not held any more."""
        grant = await self.claim(incarnation)
        return await self.runner(app).run(grant, self.hold(grant))

    async def begin(
        self, app: App, incarnation: str = "w:00000001"
    ) -> tuple[asyncio.Task[RunEnd], Held]:
        """Claim the session and start to run it."""
        grant = await self.claim(incarnation)
        held = self.hold(grant)
        return asyncio.create_task(self.runner(app).run(grant, held)), held

    async def die(self, run: asyncio.Task[RunEnd], held: Held) -> None:
        """End a worker without a trace: its lease is evicted and the session is ready again."""
        run.cancel()
        await asyncio.wait({run})
        await self.stores.worker.evict(held.lease.incarnation)
        await self.stores.worker.reap(self.partition, [self.session])

    async def make_ready(self) -> None:
        """Let the back-off of a session that was given up have passed."""
        at = self.stores.worker.keys.of(self.session)
        executor = self.stores.worker.executor
        await executor.command("HSET", at.session(self.session, "head"), "not_before", 1)
        await self.stores.worker.reap(self.partition, [self.session])

    async def hear(self, held: Held) -> None:
        """Renew the lease as a keeper does, which tells the holder of a control that waits."""
        store = self.stores.worker
        (answer,) = await store.renew(self.partition, [held.lease], ttl_ms=30_000)
        assert answer.word == "OK", answer
        if answer.alert:
            held.note_control(answer.alert)

    async def pass_quiet(self) -> None:
        """Let the times have passed until which messages wait for more."""
        command = self.stores.executor.command
        work = self.stores.worker.keys.of(self.session).session(self.session, "work")
        for one in (await self.stores.worker.read_work(self.session)).waiting:
            if one.due_ms:
                parts = (await command("HGET", work, one.n)).decode().split("|")
                await command("HSET", work, one.n, "|".join((parts[0], "1", *parts[2:])))
        await self.stores.worker.reap(self.partition, [self.session])

    async def status(self) -> Status:
        """Who acts next."""
        head = await self.stores.worker.read_head(self.session)
        assert head is not None
        return head.status

    async def pass_time(self, ms: int) -> None:
        """Let time pass for a parked session. Redis's clock cannot be set: the worker's idea of
        the time moves on, and what it wrote by that idea comes nearer by as much."""
        clock, command = self.stores.worker.clock, self.stores.executor.command
        assert isinstance(clock, AheadClock)
        clock.ahead_ms += ms
        at = self.stores.worker.keys.of(self.session)
        work = at.session(self.session, "work")
        flat = await command("HGETALL", work)
        for name, value in zip(flat[::2], flat[1::2], strict=True):
            parts = value.decode().split("|")
            if name.startswith(b"w:") and int(parts[1]):
                parts[1] = str(int(parts[1]) - clock.ahead_ms)
                await command("HSET", work, name, "|".join(parts))
        await self.stores.worker.reap(self.partition, [self.session])

    async def events(self) -> tuple[Event, ...]:
        """The whole journal."""
        return await self.stores.producer.journal(self.session)

    async def types(self) -> list[str]:
        """The journal's types, in order."""
        return [event.type for event in await self.events()]

    async def transcript(self) -> list[TranscriptItem]:
        """The whole transcript, oldest first."""
        found = await self.stores.producer.transcript_back(self.session, before=None, limit=1000)
        return sorted(found, key=lambda entry: entry.n)

    async def turns(self) -> list[TurnRecord]:
        """The turn records, oldest first."""
        found = await self.stores.producer.turns_back(self.session, before=None, limit=1000)
        return [record for _, record in reversed(found)]

    async def ending(self, id: str = "m1") -> Ending | None:
        """How a submission ended, as its receipt says."""
        (state,) = await self.stores.producer.submissions([(self.session, id)])
        assert state is not None
        return state.ending


@asynccontextmanager
async def bench(**settings: Any) -> AsyncIterator[Bench]:
    """A fresh store with one session's worth of helpers."""
    chosen = small_settings(**settings)
    executor = fake_executor(fakeredis.FakeServer())
    executor.clock = AheadClock()
    async with stores_on(executor, chosen) as stores:
        yield Bench(stores, chosen)


async def until(predicate: Callable[[], bool], description: str) -> None:
    """Let the loop run until something is so; fails after ten seconds, naming it."""

    async def so() -> bool:
        return predicate()

    await until_so(so, description)


async def until_so(predicate: Callable[[], Awaitable[bool]], description: str) -> None:
    """The same for what has to be looked up."""
    deadline = time.monotonic() + 10
    while not await predicate():
        assert time.monotonic() < deadline, f"never: {description}"
        await asyncio.sleep(0)


def texts(events: Sequence[Event], kind: str) -> list[str]:
    """The texts of one type of event."""
    return [getattr(event, "text", "") for event in events if event.type == kind]

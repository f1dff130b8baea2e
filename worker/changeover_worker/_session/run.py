"""One session while it is held: what comes next, read off its last commit, and carried out."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from changeover_shared._checkpoint import Execution
from changeover_shared._errors import PayloadDamaged
from changeover_shared._events import Failure
from changeover_shared._ops import InterruptOp, MessageOp, ResumeSessionOp, RollbackOp, TurnOp
from changeover_shared._store.keys import queue_of
from changeover_shared._store.records import InboxEntry
from changeover_shared._words import GiveUp, Status
from changeover_worker._handler import Handler
from changeover_worker._session.agent_turn import AgentTurn
from changeover_worker._session.commits import Stale
from changeover_worker._session.handler_turn import HandlerTurn
from changeover_worker._session.held import Drain
from changeover_worker._session.inputs import next_inputs, op_of
from changeover_worker._session.limiting import leave_place
from changeover_worker._session.loaded import read_context
from changeover_worker._session.running import How, Running
from changeover_worker._session.signals import Moment, reached
from changeover_worker._turn.at_once import refuse
from changeover_worker._turn.draft import Draft, Setup, Taken, new_step_id
from changeover_worker._turn.ending import CounterOverflow
from changeover_worker._turn.execution import open_calls
from changeover_worker._turn.rolling_back import NO_PAST, Past
from changeover_worker._turn.start import start

_MAX_REREADS: Final = 5


class SessionRun:
    """Runs one session under one grant."""

    def __init__(self, running: Running) -> None:
        self._running = running
        agent = running.agent
        self._setup = Setup(
            agent=agent.name,
            queue=queue_of(running.loaded.route),
            model=agent.model,
            models={agent.model, *running.app.model_names},
            asks=not isinstance(agent, Handler),
        )
        self._of_agent = AgentTurn(running, self._setup)
        self._of_handler = (
            HandlerTurn(running, self._setup, agent) if isinstance(agent, Handler) else None
        )

    @property
    def turns(self) -> int:
        """How many turns have ended here."""
        return self._running.commits.turns

    @property
    def failed_turns(self) -> int:
        """How many of them failed."""
        return self._running.commits.failed_turns

    async def to_its_end(self) -> How:
        """Go on until the session is not held any more. Raises `LeaseError` when it is lost."""
        run = self._running
        self._settle_control()
        move: Callable[[], Awaitable[None]] = self._recover
        rereads = 0
        while True:
            before = run.commits.written
            run.commits.watch.sees(run.loaded.checkpoint.execution)
            try:
                await move()
                move = self._next
            except Stale:
                await run.loaded.read_again()
                self._settle_control()
                move = self._recover
            except CounterOverflow as full:
                move = partial(run.quarantine, str(full))
            rereads = 0 if run.commits.written > before else rereads + (move != self._next)
            if rereads > _MAX_REREADS:
                raise RuntimeError(f"{run.loaded.session_id!r} is refused again and again")
            if run.given_up is not None:
                return run.given_up
            if run.commits.gone is not None:
                return "closed" if run.commits.gone is Status.CLOSED else "released"

    def _settle_control(self) -> None:
        """Take what the head said of controls as known, except one that waits for this turn."""
        loaded, held = self._running.loaded, self._running.held
        execution = loaded.checkpoint.execution
        waits = execution is not None and loaded.interrupted_turn == execution.turn_id
        held.seen_epoch = loaded.ctl_epoch - waits
        held.note_control(loaded.ctl_epoch)

    async def _next(self) -> None:
        run = self._running
        execution = run.loaded.checkpoint.execution
        run.stop_if_lost()
        if execution is not None and run.held.interrupted:
            leave_place(run)
            await run.abort()
        elif self._may_hand_off(execution):
            await run.hand_off()
        elif execution is None:
            await self._begin()
        else:
            await self._turn(execution).go_on(execution)

    def _may_hand_off(self, execution: Execution | None) -> bool:
        level = self._running.held.drain_level
        if level is Drain.AT_BOUNDARY:
            return execution is None or (execution.step is None and not open_calls(execution))
        return level is Drain.NOW

    async def _recover(self) -> None:
        """Take an open turn over, unless an interrupt waits for it."""
        execution = self._running.loaded.checkpoint.execution
        if execution is not None and not self._running.held.interrupted:
            await self._turn(execution).recover(execution)

    def _turn(self, execution: Execution) -> AgentTurn | HandlerTurn:
        """What drives an open turn: a handler answers messages only."""
        if self._of_handler is not None and execution.op == "message":
            return self._of_handler
        return self._of_agent

    async def _begin(self) -> None:
        """Take the oldest input that is due with what joins it, or let the session go."""
        run, loaded = self._running, self._running.loaded
        found = await next_inputs(run, self._setup)
        if found is None:
            await run.give_up(GiveUp.RELEASE, "released")
            return
        turn_id = f"t_{loaded.turns + 1}"
        await run.write(await self._start(*found, turn_id))
        run.answering = turn_id
        await reached(Moment.TURN_STARTED, loaded.session_id, turn_id)

    async def _start(self, entry: InboxEntry, more: tuple[Taken, ...], turn_id: str) -> Draft:
        checkpoint, now_ms = self._running.loaded.checkpoint, self._running.now_ms
        op = op_of(entry)
        if isinstance(op, InterruptOp):
            failure = Failure(
                kind="unknown_op",
                message="this release does not know the operation; it was not carried out",
            )
            return refuse(
                checkpoint,
                (entry.n,),
                (entry.submission_id,),
                failure,
                turn_id=turn_id,
                now_ms=now_ms,
            )
        first = Taken(entry.n, entry.submission_id, op, await self._context_of(op))
        for one in (first, *more):
            if isinstance(one.op, MessageOp):
                self._running.commits.watch.heard(one.submission_id, one.op.trace)
        return start(
            checkpoint,
            first,
            self._setup,
            more=more,
            turn_id=turn_id,
            step_id=new_step_id(turn_id, 0),
            first_item=self._running.loaded.transcript_n + 1,
            now_ms=now_ms,
            past=await self._past_of(op),
        )

    async def _past_of(self, op: TurnOp) -> Past:
        """What a rollback needs of the turns before; other ops need nothing."""
        to = op.to if isinstance(op, RollbackOp) else ""
        number = re.fullmatch(r"t_([1-9][0-9]{0,15})", to)
        if number is None:
            return NO_PAST
        loaded = self._running.loaded
        record = await self._running.store.read_turn(loaded.session_id, int(number[1]))
        return Past(record, loaded.items)

    async def _context_of(self, op: TurnOp) -> Mapping[str, str] | None:
        """The context of the session that the op names, if it names one of the same tenant."""
        if not isinstance(op, ResumeSessionOp):
            return None
        try:
            head = await self._running.store.read_head(op.target)
        except PayloadDamaged:
            return None
        if head is None or head.status is Status.DELETED:
            return None
        if head.tenant != self._running.loaded.tenant:
            return None
        with suppress(ValueError):
            return read_context(head.context)
        return None

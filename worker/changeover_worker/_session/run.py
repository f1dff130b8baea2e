"""One session while it is held: what comes next, read off its last commit, and carried out."""

from __future__ import annotations

from contextlib import aclosing
from functools import partial
from typing import Any, Final, Literal

from pydantic import ValidationError
from structlog.typing import FilteringBoundLogger

from changeover_shared._checkpoint import Execution
from changeover_shared._events import Failure
from changeover_shared._ops import InterruptOp, decode_op
from changeover_shared._settings import Settings
from changeover_shared._store.keys import queue_of
from changeover_shared._store.lease_store import LeaseStore
from changeover_shared._store.records import InboxEntry
from changeover_shared._words import GiveUp, Status
from changeover_worker._agent import Agent
from changeover_worker._app import App
from changeover_worker._models.model import ModelResponse
from changeover_worker._session.agent_calls import AgentCalls
from changeover_worker._session.commits import Commits, Stale
from changeover_worker._session.draft import NO_TAIL, Draft, Onward, Setup, Tail, Taken, new_step_id
from changeover_worker._session.ending import abort, fail
from changeover_worker._session.execution import open_calls, stamp
from changeover_worker._session.held import Drain, Held
from changeover_worker._session.loaded import Loaded
from changeover_worker._session.model_step import StepEnd, ask
from changeover_worker._session.recorder import StepRecorder
from changeover_worker._session.recovery import recover
from changeover_worker._session.signals import Moment, reached
from changeover_worker._session.start import refuse, settle_model, start
from changeover_worker._session.tool_group import run_group
from changeover_worker._session.turn import answered, landed
from changeover_worker._session.writer import Writer
from changeover_worker._tools.threads import Threads

_MAX_REREADS: Final = 5

How = Literal["released", "handed_off", "closed"]


class SessionRun:
    """Runs one session under one grant."""

    def __init__(
        self,
        app: App,
        store: LeaseStore,
        settings: Settings,
        log: FilteringBoundLogger,
        *,
        agent: Agent,
        resources: Any,
        threads: Threads,
        held: Held,
        loaded: Loaded,
        writer: Writer,
    ) -> None:
        self._store = store
        self._settings = settings
        self._agent = agent
        self._held = held
        self._loaded = loaded
        self._writer = writer
        self._calls = AgentCalls(
            app, agent, log, held=held, loaded=loaded, resources=resources, threads=threads
        )
        self._commits = Commits(
            store, settings, log, writer=writer, held=held, loaded=loaded, agent=agent
        )
        self._setup = Setup(
            agent=agent.name,
            queue=queue_of(loaded.route),
            model=agent.model,
            models=frozenset(app.model_names),
        )
        self._given_up: How | None = None

    @property
    def turns(self) -> int:
        """How many turns have ended here."""
        return self._commits.turns

    @property
    def failed_turns(self) -> int:
        """How many of them failed."""
        return self._commits.failed_turns

    async def to_its_end(self) -> How:
        """Go on until the session is not held any more. Raises `LeaseError` when it is lost."""
        self._settle_control()
        move = self._recover
        rereads = 0
        while True:
            before = self._commits.written
            try:
                await move()
                move = self._next
            except Stale:
                await self._loaded.read_again()
                self._settle_control()
                move = self._recover
            rereads = 0 if self._commits.written > before else rereads + (move != self._next)
            if rereads > _MAX_REREADS:
                raise RuntimeError(f"{self._loaded.session_id!r} is refused again and again")
            if self._given_up is not None:
                return self._given_up
            if self._commits.gone is not None:
                return "closed" if self._commits.gone is Status.CLOSED else "released"

    def _settle_control(self) -> None:
        """Take what the head said of controls as known, except one that waits for this turn."""
        execution, loaded = self._loaded.checkpoint.execution, self._loaded
        waits = execution is not None and loaded.interrupted_turn == execution.turn_id
        self._held.seen_epoch = loaded.ctl_epoch - waits
        self._held.note_control(loaded.ctl_epoch)

    async def _next(self) -> None:
        execution = self._loaded.checkpoint.execution
        self._stop_if_lost()
        if execution is not None and self._held.interrupted:
            await self._abort()
        elif self._may_hand_off(execution):
            await self._give_up(GiveUp.HAND_OFF, "handed_off")
        elif execution is None:
            await self._begin()
        elif execution.step is not None:
            await self._ask(execution)
        elif open_calls(execution):
            await self._call(execution)
        else:
            await self._recover()

    def _may_hand_off(self, execution: Execution | None) -> bool:
        if self._held.drain_level is Drain.AT_BOUNDARY:
            return execution is None or (execution.step is None and not open_calls(execution))
        return self._held.drain_level is Drain.NOW

    async def _recover(self) -> None:
        """Take an open turn over, unless an interrupt waits for it."""
        if self._loaded.checkpoint.execution is None or self._held.interrupted:
            return
        execution = self._loaded.checkpoint.execution
        checkpoint, changed = settle_model(self._loaded.checkpoint, self._setup, execution.turn_id)
        draft = recover(
            checkpoint,
            on_takeover=self._agent.on_takeover,
            onward=self._onward(execution.turn_id, execution.next_step, str(checkpoint.model)),
            now_ms=self._now_ms(),
            takeover=self._loaded.taken_over,
        )
        if draft is not None:
            await self._write(draft.after(changed))

    async def _begin(self) -> None:
        """Take the oldest input that is due, or let the session go."""
        await self._loaded.read_arrivals()
        waiting = self._loaded.next_input(self._now_ms())
        if waiting is None:
            await self._give_up(GiveUp.RELEASE, "released")
            return
        entry = await self._loaded.body(waiting.n)
        if entry is None:
            raise Stale("INPUT")
        turn_id = f"t_{self._loaded.turns + 1}"
        await self._write(self._start(entry, turn_id))
        await reached(Moment.TURN_STARTED, self._loaded.session_id, turn_id)

    def _start(self, entry: InboxEntry, turn_id: str) -> Draft:
        now_ms = self._now_ms()
        try:
            op = decode_op(entry.body)
        except ValidationError:
            op = InterruptOp()
        if isinstance(op, InterruptOp):
            failure = Failure(
                kind="unknown_op",
                message="this release does not know the operation; it was not carried out",
            )
            return refuse(
                self._loaded.checkpoint,
                entry.n,
                entry.submission_id,
                failure,
                turn_id=turn_id,
                now_ms=now_ms,
            )
        return start(
            self._loaded.checkpoint,
            Taken(entry.n, entry.submission_id, op),
            self._setup,
            turn_id=turn_id,
            step_id=new_step_id(turn_id, 0),
            now_ms=now_ms,
        )

    async def _ask(self, execution: Execution) -> None:
        """One model step, from its question to the commit that ends it."""
        step_id = execution.step.step_id if execution.step else None
        await reached(Moment.STEP_STARTED, self._loaded.session_id, str(step_id))
        end = await ask(
            partial(self._calls.question, execution, str(step_id)),
            StepRecorder(self._writer, stamp(execution, step_id)),
            self._held,
            timeout_s=self._settings.step_timeout.total_seconds(),
        )
        self._stop_if_lost()
        checkpoint, now_ms = self._loaded.checkpoint, self._now_ms()
        if self._held.interrupted:
            await self._abort(end.whole_tail)
        elif self._is_given_up(end):
            await self._give_up(GiveUp.HAND_OFF, "handed_off")
        elif end.response is None:
            failure = end.failure or _CANCELLED_ITSELF
            await self._write(fail(checkpoint, failure, now_ms=now_ms, tail=end.tail))
        else:
            await self._answer(execution, end, end.response)

    def _is_given_up(self, end: StepEnd) -> bool:
        """Whether an urgent drain leaves the step to the next worker.

        An answer with calls is left too: none of them has started, but once committed they count
        as calls that may have run.
        """
        if self._held.drain_level is not Drain.NOW:
            return False
        return end.response is None or bool(end.response.message.tool_calls)

    async def _answer(self, execution: Execution, end: StepEnd, response: ModelResponse) -> None:
        draft = answered(
            self._loaded.checkpoint,
            response,
            end.tail,
            effect_of=self._calls.effect_of,
            onward=self._onward(execution.turn_id, execution.next_step + 1, self._model),
            now_ms=self._now_ms(),
        )
        await self._commits.write(draft, end.whole_tail)
        await reached(Moment.ASSISTANT_COMMITTED, self._loaded.session_id)

    async def _call(self, execution: Execution) -> None:
        """Run the open calls; each result is committed as it lands."""
        run = partial(self._calls.run_tool, execution)
        async with aclosing(run_group(open_calls(execution), run, self._held)) as group:
            async for results in group:
                self._stop_if_lost()
                draft = landed(
                    self._loaded.checkpoint,
                    results,
                    onward=self._onward(execution.turn_id, execution.next_step, self._model),
                    now_ms=self._now_ms(),
                )
                await self._write(draft)

    async def _abort(self, tail: Tail = NO_TAIL) -> None:
        """End the turn because it was interrupted."""
        reason = await self._commits.why_interrupted()
        await self._write(abort(self._loaded.checkpoint, reason, now_ms=self._now_ms(), tail=tail))

    async def _write(self, draft: Draft) -> None:
        await self._commits.write(draft)

    async def _give_up(self, reason: GiveUp, how: How) -> None:
        await self._writer.give_up(reason)
        self._given_up = how
        if reason is GiveUp.HAND_OFF:
            await reached(Moment.HANDED_OFF, self._loaded.session_id)

    def _onward(self, turn_id: str, index: int, model: str) -> Onward:
        leave = self._held.drain_level is not Drain.NO or self._held.interrupted
        return Onward(
            step_id=None if leave else new_step_id(turn_id, index),
            model=model,
            max_steps=self._settings.max_steps,
        )

    def _stop_if_lost(self) -> None:
        if self._held.lost is not None:
            raise self._held.lost

    def _now_ms(self) -> int:
        return self._store.clock.now_ms()

    @property
    def _model(self) -> str:
        return str(self._loaded.checkpoint.model)


_CANCELLED_ITSELF: Final = Failure(
    kind="model_crashed", message="the model's task was cancelled from within"
)

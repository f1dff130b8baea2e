"""Carries the durable calls of a handler out: what it asked for, committed and answered."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import replace
from typing import Final

from changeover_shared._checkpoint import Execution
from changeover_shared._errors import Invalid, ToolError
from changeover_shared._items import StepRecord
from changeover_worker._models.model import (
    Emit,
    ModelDelta,
    ModelRequest,
    ModelResponse,
    TextDelta,
)
from changeover_worker._readable import error_text
from changeover_worker._session.asking import ask_for, asked_again, pause_until, set_aside
from changeover_worker._session.handler_run import Asked, Calls
from changeover_worker._session.held import Drain
from changeover_worker._session.inputs import waiting_steers
from changeover_worker._session.limiting import asked_within
from changeover_worker._session.model_step import StepEnd
from changeover_worker._session.running import Running
from changeover_worker._session.signals import Moment, reached
from changeover_worker._stopping import stop
from changeover_worker._tools.output import as_json
from changeover_worker._tools.runner import said_by, told
from changeover_worker._turn.budget import used_up
from changeover_worker._turn.draft import NO_TAIL, Draft, Onward, Setup, Tail, new_step_id
from changeover_worker._turn.durable import ModelCall, SayCall, SleepCall, SteeringCall, StepCall
from changeover_worker._turn.ending import fail
from changeover_worker._turn.execution import open_execution
from changeover_worker._turn.handler import (
    answered,
    begun,
    opened,
    parked,
    recorded,
    refused,
    said,
    slept,
    steered,
)
from changeover_worker._turn.retry import reopened

HELD_SLEEP_MS: Final = 1000
"""The longest sleep that a worker waits out."""


class HandlerCalls:
    """Carries the calls of one run out, each to its commit, unless the session must stop."""

    def __init__(self, running: Running, setup: Setup, calls: Calls) -> None:
        self._running = running
        self._setup = setup
        self._calls = calls
        self._turn_id = open_execution(running.loaded.checkpoint).turn_id

    @property
    def may_go_on(self) -> bool:
        """Whether the turn is still open and the session still held."""
        execution = self._running.loaded.checkpoint.execution
        is_open = execution is not None and execution.turn_id == self._turn_id
        return is_open and self._running.commits.gone is None

    async def carry_out(self, asked: Asked) -> None:
        """Carry one call out. It has no answer if the session must stop, the turn has ended or
        parks. Raises as `Running.write`."""
        match asked.call:
            case StepCall() as call:
                await self._step(asked, call)
            case ModelCall() as call:
                await self._model(asked, call)
            case SayCall() as call:
                await self._record(asked, *said(self._running.loaded.checkpoint, call))
            case SleepCall() as call:
                await self._sleep(asked, call)
            case SteeringCall():
                steers = await waiting_steers(self._running, self._setup)
                await self._record(asked, *steered(self._running.loaded.checkpoint, steers))

    async def _record(
        self, asked: Asked, draft: Draft, record: StepRecord, tail: Tail = NO_TAIL
    ) -> None:
        await self._running.write(draft, tail)
        if self.may_go_on:
            self._calls.answer(asked, record)

    # Steps

    async def _step(self, asked: Asked, call: StepCall) -> None:
        run = self._running
        await run.write(begun(run.loaded.checkpoint, call))
        if not self.may_go_on:
            return
        await reached(Moment.TOOL_STARTED, run.loaded.session_id, call.name)
        record = await self._tries(asked, call)
        run.stop_if_lost()
        if record is not None:
            await reached(Moment.TOOL_DONE, run.loaded.session_id, call.name)
            await self._record(asked, recorded(run.loaded.checkpoint, record), record)

    async def _tries(self, asked: Asked, call: StepCall) -> StepRecord | None:
        """The record of the first attempt that succeeds, or of the last; None if it was stopped."""
        record, log = None, self._running.log
        for _ in range(1 + call.retries):
            record = await self._attempt(asked, call)
            if record is None or not record.is_error:
                return record
            log.warning(
                "step_failed",
                session=self._running.loaded.session_id,
                turn=self._turn_id,
                step=call.name,
                error=record.output,
            )
        return record

    async def _attempt(self, asked: Asked, call: StepCall) -> StepRecord | None:
        """Run the function once, in a task that stops when the session must, or when the handler
        does not wait for it any more."""
        loop, held = asyncio.get_running_loop(), self._running.held
        task = loop.create_task(_run(call), name=f"step-{call.name}", context=asked.context)
        stopped = loop.create_task(asyncio.Event().wait())
        held.running((task, stopped))
        limit_s = call.timeout.total_seconds()
        try:
            await asyncio.wait(
                (task, stopped, asked.answer),
                timeout=limit_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
            ended, gave_up = task.done(), stopped.done() or asked.answer.done()
        finally:
            held.running(())
            stopped.cancel()
            await stop((task,))
        record = task.result() if task.done() and not task.cancelled() else None
        if record is not None and (not record.is_error or (ended and not held.stopped)):
            return record
        if gave_up or held.stopped:
            return None
        if ended:
            return _failed(call, "CancelledError: the step was cancelled from within")
        return _failed(call, f"it did not end within {limit_s:g} s; it may have run")

    # The model

    async def _model(self, asked: Asked, call: ModelCall) -> None:
        run = self._running
        name = call.model or str(run.loaded.checkpoint.model)
        if name not in run.app.model_names:
            known = ", ".join(run.app.model_names) or "none"
            reason = f"there is no model {name!r:.80} in this app; there are: {known}"
            self._calls.answer(
                asked, Invalid(field="model", reason=reason, unchanged="nothing was asked")
            )
            return
        while await self._opened(name):
            end = await self._ask(call, name)
            if run.held.interrupted:
                await run.abort(end.tail)
            elif end.response is not None:
                response = _as_phase(end.response, call)
                draft, record = answered(
                    run.loaded.checkpoint, response, end.tail, now_ms=run.now_ms
                )
                await self._record(asked, draft, record, end.tail)
            elif end.limited is not None:
                await set_aside(run, end.limited, run.loaded.checkpoint)
            elif run.held.drain_level is not Drain.NOW:
                await self._failed(asked, end, name)
            if self.may_go_on and self._execution.retry is not None and not asked.answer.done():
                continue
            return

    async def _failed(self, asked: Asked, end: StepEnd, model: str) -> None:
        run = self._running
        again = asked_again(run, end, model)
        if again is not None:
            await run.write(again, end.tail)
        else:
            draft, record = refused(run.loaded.checkpoint, end.why, end.tail)
            await self._record(asked, draft, record, end.tail)

    async def _opened(self, model: str) -> bool:
        """Open the model step that is next, once the pause before it is over; whether to ask."""
        run, execution = self._running, self._execution
        failure = used_up(execution, run.limits)
        if failure is not None:
            await run.write(fail(run.loaded.checkpoint, failure, now_ms=run.now_ms))
            return False
        retry = execution.retry
        if retry and not await pause_until(run, retry.until_ms):
            return False
        step_id = new_step_id(self._turn_id, execution.next_step)
        onward = Onward(step_id, model, run.limits)
        open_again = reopened if retry else opened
        await run.write(open_again(run.loaded.checkpoint, onward, now_ms=run.now_ms))
        return self.may_go_on

    async def _ask(self, call: ModelCall, name: str) -> StepEnd:
        run, execution = self._running, self._execution
        request = ModelRequest(
            instructions=call.instructions,
            items=call.items,
            session_id=run.loaded.session_id,
            turn_id=self._turn_id,
            step_id=execution.step.step_id if execution.step else "",
        )

        async def question(emit: Emit) -> ModelResponse:
            async def in_phase(delta: ModelDelta) -> None:
                if isinstance(delta, TextDelta) and delta.phase != "refusal":
                    delta = replace(delta, phase=call.phase)
                await emit(delta)

            return await asked_within(run, name, request, in_phase)

        return await ask_for(run, execution, question, model=name)

    # Sleep

    async def _sleep(self, asked: Asked, call: SleepCall) -> None:
        run = self._running
        begun_before = self._execution.handler_step
        until_ms = begun_before.until_ms if begun_before else run.now_ms + call.span_ms
        if until_ms - run.now_ms > HELD_SLEEP_MS:
            await run.write(parked(run.loaded.checkpoint, until_ms))
        elif await pause_until(run, until_ms):
            await self._record(asked, *slept(run.loaded.checkpoint))

    @property
    def _execution(self) -> Execution:
        return open_execution(self._running.loaded.checkpoint)


async def _run(call: StepCall) -> StepRecord:
    try:
        value = call.function()
        if not inspect.isawaitable(value):
            kind = type(value).__name__
            raise TypeError(f"the function returned a {kind} at once; make it async def")
        return StepRecord(name=call.name, output=as_json(await value, ran="the step"))
    except asyncio.CancelledError:
        raise
    except ToolError as error:
        return _failed(call, said_by(error))
    except BaseException as error:
        return _failed(call, told(error, "the step"))


def _failed(call: StepCall, text: str) -> StepRecord:
    return StepRecord(name=call.name, output=error_text(text), is_error=True)


def _as_phase(response: ModelResponse, call: ModelCall) -> ModelResponse:
    """The response under the phase that the handler gave it."""
    if response.message.phase == "refusal":
        return response
    message = response.message.model_copy(update={"phase": call.phase})
    return replace(response, message=message)

"""One model step: ask, stream into the journal, and come back with the answer or why there is none.

The model runs in a task of its own. When the session has to stop (an interrupt, a lost lease, an
urgent drain) that task is cancelled; when the step has ended, for whatever reason, the recorder
takes nothing more, so late text belongs to nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final, Protocol

from changeover_shared._errors import ChangeoverError, TooLarge
from changeover_shared._events import Failure, Warned
from changeover_worker._models.assembled import Assembled
from changeover_worker._models.gate import Limited
from changeover_worker._models.model import Emit, ModelDelta, ModelError, ModelResponse, TextDelta
from changeover_worker._readable import error_text
from changeover_worker._session.heard import Hearing, readable_answer, readable_delta
from changeover_worker._session.held import Held
from changeover_worker._session.signals import Moment, reached
from changeover_worker._stopping import stop
from changeover_worker._turn.draft import Tail


@dataclass(frozen=True, slots=True)
class StepEnd:
    """How a model step ended: with a response, with a failure, or stopped with neither."""

    response: ModelResponse | None
    failure: Failure | None
    tail: Tail
    """What it leaves behind, with the tokens that it cost."""
    calls_admitted: bool = False
    """A tool call was heard, whole or in part: asking again might run it twice."""
    limited: Limited | None = None
    """The model was not asked: it is at its limit."""

    @property
    def why(self) -> Failure:
        """Why there is no response in a session that did not have to stop: without a failure only
        the model itself can have cancelled its task."""
        return self.failure or _CANCELLED_ITSELF


class Recording(Protocol):
    """Where a model step's deltas go."""

    @property
    def stamp(self) -> dict[str, Any]:
        """Which submission, turn and step they belong to."""
        ...

    async def emit(self, delta: ModelDelta) -> None:
        """Admit a piece; raises `EmitRefused` once it was stopped."""
        ...

    def stop(self) -> None:
        """Take nothing more."""
        ...

    async def close(self) -> Tail:
        """End the step; what it leaves behind."""
        ...


_CANCELLED_ITSELF: Final = Failure(
    kind="model_crashed", message="the model's task was cancelled from within"
)

Question = Callable[[Emit], Awaitable[ModelResponse]]
"""Asks the model, with whatever has to be found out first."""


async def ask(
    question: Question,
    recorder: Recording,
    held: Held,
    *,
    timeout_s: float,
    speaks: Callable[[], None] = lambda: None,
) -> StepEnd:
    """Ask until the model has answered, failed, taken too long or was stopped; `speaks` is called
    when the first text was admitted.

    Raises the recorder's first failure, a `LeaseError` as a rule.
    """
    step = _Listening(recorder, held, speaks)
    loop = asyncio.get_running_loop()
    task = loop.create_task(step.listen(question))
    # Not the task itself: a model may go on although it is cancelled, and must not be heard then.
    stopped: asyncio.Future[None] = loop.create_future()
    held.running((stopped,))
    try:
        await asyncio.wait((task, stopped), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        late = not task.done() and not stopped.done()
    finally:
        held.running(())
        recorder.stop()
        if not task.done():
            await stop((task,))
    tail = step.tail(await recorder.close())
    calls = step.hearing.calls_admitted
    if late:
        return StepEnd(None, _timed_out(timeout_s), tail, calls)
    if task.cancelled() or not task.done():
        return StepEnd(None, None, tail, calls)
    answer = task.result()
    if isinstance(answer, ModelResponse):
        return StepEnd(answer, None, tail, calls)
    if isinstance(answer, Limited):
        return StepEnd(None, None, tail, calls, answer)
    return StepEnd(None, failure_of(answer, "model_crashed"), tail, calls)


class _Listening:
    """Listens to one model: shows what it says and puts its answer together."""

    def __init__(self, recorder: Recording, held: Held, speaks: Callable[[], None]) -> None:
        self.hearing = Hearing()
        self._speaks = speaks
        self._said = False
        self._recorder = recorder
        self._session_id = held.lease.session_id
        self._assembled = Assembled()
        self._pieces = 0
        self._loop = asyncio.get_running_loop()

    async def listen(self, question: Question) -> ModelResponse | BaseException:
        """The answer, or what was raised: as a value, since asyncio hands `SystemExit` of a task
        on to the loop."""
        try:
            returned = self.hearing.answer(await question(self._emit))
            answer = readable_answer(self._assembled.whole(returned))
            unsaid = self._assembled.unsaid(answer.message)
            if unsaid.text:
                # What no event can hold is for the commit to refuse.
                with suppress(TooLarge):
                    await self._show(unsaid)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            return error
        finally:
            self._recorder.stop()
        return answer

    def tail(self, tail: Tail) -> Tail:
        """What the step leaves behind, with its count of tokens. Nothing is heard afterwards, so a
        model that keeps its callback keeps no session."""
        self._speaks = _nobody_listens
        events = tail.events
        if self._assembled.miscounted:
            text = "the provider told of a number of tokens that cannot be; it was not counted"
            events = (*events, Warned(code="usage", text=text, **self._recorder.stamp))
        return replace(tail, events=events, usage=self._assembled.usage)

    async def _emit(self, delta: ModelDelta) -> None:
        if asyncio.get_running_loop() is not self._loop:
            # A write begun on another loop would be cancelled with that, and the session with it.
            raise RuntimeError("emit was awaited on another event loop than respond; nothing came")
        self.hearing.delta(delta)
        await self._show(self._assembled.take(delta))

    async def _show(self, delta: ModelDelta) -> None:
        await self._recorder.emit(readable_delta(delta))
        if isinstance(delta, TextDelta) and delta.text and not self._said:
            self._said = True
            self._speaks()
        self._pieces += 1
        await reached(Moment.DELTA, self._session_id, str(self._pieces))


def _nobody_listens() -> None:
    return None


def failure_of(error: BaseException, kind: str) -> Failure:
    """An exception as data: its own kind if it is one of ours and holds what it says, else
    `kind`."""
    with suppress(Exception):
        if isinstance(error, ChangeoverError):
            return _own_failure(error)
    return Failure(kind=kind, message=error_text(f"{type(error).__name__}: {_words(error)}"))


def _own_failure(error: ChangeoverError) -> Failure:
    if isinstance(error, ModelError):
        return Failure(
            kind=error_text(str(error.kind)),
            message=error_text(str(error.message)),
            retryable=bool(error.retryable),
            retry_after_ms=_milliseconds(error.retry_after),
        )
    return Failure(kind=error.code, message=error_text(str(error)))


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "it cannot be shown"


def _milliseconds(span: timedelta | None) -> int | None:
    return None if span is None else round(span / timedelta(milliseconds=1))


def _timed_out(timeout_s: float) -> Failure:
    return Failure(
        kind="provider_timeout",
        message=f"the model did not answer within {timeout_s:g} s; its text was dropped",
        retryable=True,
    )

"""One run of a handler: in a task of its own, its durable calls handed over one at a time.

The handler's task asks and waits; whoever drives the turn carries the calls out, so that a
handler that is cancelled never cancels a write. When the session has to stop or is wanted
elsewhere the handler is unwound: its open call, and every further one, raises `TurnStopped`.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final

from changeover_shared._errors import Invalid
from changeover_shared._events import Failure
from changeover_shared._items import StepRecord
from changeover_worker._handler import StepMismatch, Turn, TurnStopped
from changeover_worker._session.held import Held
from changeover_worker._stopping import stop
from changeover_worker._tools.exits import contain_exits, in_tool
from changeover_worker._turn.durable import DurableCall, StepCall, called
from changeover_worker._turn.replay import Mismatch, Replay, answer_of

MAX_CALLS: Final = 4096
"""How many durable calls one turn may make, and how many may be refused."""
UNWIND_S: Final = 1.0
"""How long an unwound handler may clean up before it is cancelled as well."""
REFUSED_PAUSE_S: Final = 1.0
"""How long a handler waits for each further refusal once it has had so many."""


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A durable call on its way: what was asked, and who waits for it."""

    call: DurableCall
    context: contextvars.Context
    """What the handler's context variables held when it asked."""
    answer: asyncio.Future[StepRecord | Invalid | None]
    """None unwinds the handler."""


@dataclass(slots=True, eq=False)
class Calls:
    """The durable calls of one run: what is recorded answers at once, the rest is handed over."""

    replay: Replay
    mismatch: str = ""
    """How the handler left the recorded way, if it did."""
    failure: Failure | None = None
    """What the turn fails with, whatever the handler makes of it."""
    _names: set[str] = field(default_factory=set)
    _open: Asked | None = None
    _over: type[TurnStopped] | None = None
    _why: str = ""
    _refused: int = 0
    _woken: asyncio.Event = field(default_factory=asyncio.Event)

    async def carry_out(self, call: DurableCall) -> Any:
        """Answer a call of the handler. Raises what it came to, `Invalid` for one that may not
        be made, and `TurnStopped` when the handler does not go on here."""
        try:
            self._check(call)
            record = self._recorded(call)
        except (Invalid, TurnStopped):
            await self._slow_down()
            raise
        if isinstance(call, StepCall):
            self._names.add(call.name)
        if record is None:
            record = await self._handed_over(call)
        else:
            await self._repeated(call)
        return answer_of(record)

    def stop(self, kind: type[TurnStopped], why: str) -> None:
        """Unwind the handler: its open call and all further ones raise. The first reason stays."""
        if self._over is None:
            self._over, self._why = kind, why
        if self._open is not None:
            self.answer(self._open, None)
        self._woken.set()

    def fail(self, kind: str, message: str) -> None:
        """Unwind the handler and have its turn fail."""
        self.failure = self.failure or Failure(kind=kind, message=message)
        self.stop(TurnStopped, message)

    def answer(self, asked: Asked, answer: StepRecord | Invalid | None) -> None:
        """Say what a call came to; a record is committed already."""
        if isinstance(answer, StepRecord):
            self.replay.add(answer)
        if not asked.answer.done():
            asked.answer.set_result(answer)

    async def next(self) -> Asked | None:
        """Wait for the handler's next call that is not recorded; None when it is unwound."""
        while self._over is None:
            if self._open is not None and not self._open.answer.done():
                return self._open
            self._woken.clear()
            await self._woken.wait()
        return None

    @property
    def is_open(self) -> bool:
        """Whether a call has been handed over and is not answered."""
        return self._open is not None

    @property
    def is_over(self) -> bool:
        """Whether the handler is being unwound."""
        return self._over is not None

    def _recorded(self, call: DurableCall) -> StepRecord | None:
        """The record that answers a call, if it has ended. Raises `StepMismatch`."""
        try:
            return self.replay.next(call)
        except Mismatch as way:
            self.mismatch = str(way)
            self.stop(StepMismatch, self.mismatch)
            raise StepMismatch(self._why) from way

    async def _slow_down(self) -> None:
        """Let others run before a call is refused: a handler that calls again whatever it is told
        would hold up the whole worker."""
        self._refused += 1
        if self._refused == MAX_CALLS and self._over is None:
            self.fail("handler", f"the handler went on with {MAX_CALLS} calls that were refused")
        await asyncio.sleep(0 if self._refused < MAX_CALLS else REFUSED_PAUSE_S)

    def _check(self, call: DurableCall) -> None:
        if self._over is not None:
            raise self._over(self._why)
        name = called(call.kind, call.name)
        if self._open is not None:
            other = called(self._open.call.kind, self._open.call.name)
            raise _invalid(name, f"{other} runs; a handler makes one durable call at a time")
        if isinstance(call, StepCall) and call.name in self._names:
            raise _invalid(name, "the turn has a step of that name; names are unique in a turn")
        if self.replay.asked >= MAX_CALLS:
            self.fail("step_limit", f"the turn made {MAX_CALLS} durable calls, the limit")
            raise TurnStopped(self._why)

    async def _repeated(self, call: DurableCall) -> None:
        """Be open for a moment: a second call beside this one is refused as in the first run."""
        answer = asyncio.get_running_loop().create_future()
        answer.set_result(None)
        self._open = Asked(call, contextvars.copy_context(), answer)
        try:
            await asyncio.sleep(0)
        finally:
            self._open = None

    async def _handed_over(self, call: DurableCall) -> StepRecord:
        answer: asyncio.Future[StepRecord | Invalid | None]
        answer = asyncio.get_running_loop().create_future()
        self._open = Asked(call, contextvars.copy_context(), answer)
        self._woken.set()
        try:
            answered = await answer
        except asyncio.CancelledError:
            if self._over is None:
                name = called(call.kind, call.name)
                self.fail("handler", f"the handler gave {name} up while it ran; give it a timeout")
            raise
        finally:
            self._open = None
        if answered is None:
            raise (self._over or TurnStopped)(self._why)
        if isinstance(answered, Invalid):
            raise answered
        return answered


@dataclass(frozen=True, slots=True)
class Returned:
    """How a handler ended: a value, since asyncio hands `SystemExit` of a task on to the loop."""

    value: Any = None
    error: BaseException | None = None


class HandlerRun:
    """Runs a handler while it is entered; at the exit it is unwound, within a few seconds."""

    def __init__(
        self,
        function: Callable[[Turn[Any]], Awaitable[Any]],
        turn: Turn[Any],
        calls: Calls,
        held: Held,
    ) -> None:
        self._function = function
        self._turn = turn
        self._calls = calls
        self._held = held
        self.returned: Returned | None = None
        """How it ended, if it ended by itself."""

    async def __aenter__(self) -> HandlerRun:
        loop = asyncio.get_running_loop()
        contain_exits(loop)
        self._task = loop.create_task(self._run(), name=f"handler-{self._turn.turn_id}")
        self._leaving = loop.create_task(self._held.changed_or(None))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        if self._task.done() and not self._calls.is_over:
            self.returned = self._task.result()
        waits = self._calls.is_open
        self._calls.stop(TurnStopped, "the turn does not go on here")
        try:
            if waits and not self._task.done():
                await asyncio.wait((self._task,), timeout=UNWIND_S)
        finally:
            self._leaving.cancel()
            await stop((self._task,))

    async def next_call(self, timeout_s: float) -> Asked | None:
        """The next call to carry out; None when the handler has ended, must stop, or has taken
        too long."""
        asked = asyncio.get_running_loop().create_task(self._calls.next())
        try:
            await asyncio.wait(
                (self._task, self._leaving, asked),
                timeout=timeout_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if self._task.done() or self._leaving.done() or self._calls.is_over:
                return None
            if asked.done():
                return asked.result()
            text = f"the handler neither returned nor made a durable call within {timeout_s:g} s"
            self._calls.fail("handler_timeout", text)
            return None
        finally:
            asked.cancel()

    async def _run(self) -> Returned:
        in_tool()
        try:
            return Returned(value=await self._function(self._turn))
        except BaseException as error:
            return Returned(error=error)


def _invalid(field: str, reason: str) -> Invalid:
    return Invalid(field=field, reason=reason, unchanged="nothing was run")

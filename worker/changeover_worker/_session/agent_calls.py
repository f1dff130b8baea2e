"""What a session's agent is given when its model is asked and its tools are run."""

from __future__ import annotations

from typing import Any

from changeover_shared._checkpoint import Execution, PendingCall
from changeover_shared._errors import ToolError
from changeover_shared._items import ToolCall, ToolResult
from changeover_shared._words import Effect
from changeover_worker._agent import TurnContext
from changeover_worker._models.model import (
    Emit,
    ModelError,
    ModelRequest,
    ModelResponse,
    ToolSpec,
)
from changeover_worker._session.limiting import asked_within
from changeover_worker._session.running import Running
from changeover_worker._session.signals import Moment, reached
from changeover_worker._session.watching import UNKNOWN_TOOL, Called
from changeover_worker._tools.context import StopSignal, ToolContext
from changeover_worker._tools.runner import run_tool
from changeover_worker._turn.offload import READ_RESULT, SPEC, page, parse
from changeover_worker._turn.rewriting import fixed_tokens


class AgentCalls:
    """Calls the code that an application brought, for one session."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._told = ""

    async def question(self, execution: Execution, emit: Emit) -> ModelResponse:
        """Ask the session's model. Raises whatever it raises."""
        name = str(self._running.loaded.checkpoint.model)
        self._told = await self._instructions(execution)
        request = ModelRequest(
            instructions=self._told,
            items=self._running.loaded.shown().items,
            tools=self._specs(),
            session_id=self._running.loaded.session_id,
            turn_id=execution.turn_id,
            step_id=execution.step.step_id if execution.step else "",
        )
        return await asked_within(self._running, name, request, emit)

    async def run_tool(
        self, execution: Execution, call: PendingCall, signal: StopSignal
    ) -> ToolResult:
        """Run one pending call."""
        context: ToolContext[Any] = ToolContext(
            session_id=self._running.loaded.session_id,
            tenant=self._running.loaded.tenant,
            turn_id=execution.turn_id,
            step=execution.next_step - 1,
            call_id=call.call_id,
            fence=self._running.held.lease.fence,
            epoch=self._running.loaded.epoch,
            attempt=max(1, call.attempts),
            resources=self._running.resources,
            context=self._running.loaded.context,
            stop=signal,
        )
        asked = ToolCall(call_id=call.call_id, name=call.name, arguments=call.arguments)
        await reached(Moment.TOOL_STARTED, self._running.loaded.session_id, call.call_id)
        called = Called(
            tool=call.name if self._knows(call.name) else UNKNOWN_TOOL,
            session_id=context.session_id,
            turn_id=context.turn_id,
            call_id=call.call_id,
        )
        with self._running.watcher.calling(called):
            result = await self._result(asked, context)
            called.ending = "unknown" if result.unknown else "error" if result.is_error else "ok"
        await reached(Moment.TOOL_DONE, self._running.loaded.session_id, call.call_id)
        return result

    async def _result(self, call: ToolCall, context: ToolContext[Any]) -> ToolResult:
        if call.name == READ_RESULT:
            return await self._read_result(call)
        run = self._running
        return await run_tool(run.agent.toolbox, call, context, threads=run.threads, log=run.log)

    def _knows(self, name: str) -> bool:
        return name == READ_RESULT or name in self._running.agent.toolbox

    def effect_of(self, name: str) -> Effect:
        """What a tool may do twice. One that is not here does nothing at all."""
        known = self._running.agent.toolbox.get(name)
        return Effect.PURE if known is None else known.effect

    def fixed_tokens(self) -> int:
        """Estimate what stands in each request beside its items. Instructions that are a function
        count as what they last came to."""
        told = self._running.agent.instructions
        return fixed_tokens(told if isinstance(told, str) else self._told, self._specs())

    def _specs(self) -> tuple[ToolSpec, ...]:
        specs = self._running.agent.specs
        return (*specs, SPEC) if self._running.loaded.shown().offers_reading else specs

    async def _read_result(self, call: ToolCall) -> ToolResult:
        """Run a call of `read_result`, whichever worker's turn it is by now."""
        loaded = self._running.loaded
        try:
            asked = parse(call.arguments)
            left_out = loaded.checkpoint.left_out
            known = asked.item <= loaded.transcript_n and not any(
                r.first <= asked.item <= r.last for r in left_out
            )
            store, session_id = self._running.store, loaded.session_id
            item = await store.read_item(session_id, asked.item) if known else None
            output, is_error = page(asked, item), False
        except ToolError as error:
            output, is_error = str(error), True
        return ToolResult(call_id=call.call_id, name=call.name, output=output, is_error=is_error)

    async def _instructions(self, execution: Execution) -> str:
        turn: TurnContext[Any] = TurnContext(
            session_id=self._running.loaded.session_id,
            tenant=self._running.loaded.tenant,
            turn_id=execution.turn_id,
            context=self._running.loaded.context,
            metadata=self._running.loaded.checkpoint.metadata,
            resources=self._running.resources,
        )
        try:
            return await self._running.agent.instruct(turn)
        except Exception as error:
            said = f"the instructions of agent {self._running.agent.name!r} failed: {error}"
            raise ModelError(kind="instructions", message=said, retryable=False) from error

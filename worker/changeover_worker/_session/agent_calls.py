"""What a session's agent is given when its model is asked and its tools are run."""

from __future__ import annotations

from typing import Any

from changeover_shared._checkpoint import Execution, PendingCall
from changeover_shared._items import ToolCall, ToolResult
from changeover_shared._words import Effect
from changeover_worker._agent import TurnContext
from changeover_worker._models.model import Emit, ModelError, ModelRequest, ModelResponse
from changeover_worker._session.running import Running
from changeover_worker._session.signals import Moment, reached
from changeover_worker._tools.context import StopSignal, ToolContext
from changeover_worker._tools.runner import run_tool


class AgentCalls:
    """Calls the code that an application brought, for one session."""

    def __init__(self, running: Running) -> None:
        self._running = running

    async def question(self, execution: Execution, step_id: str, emit: Emit) -> ModelResponse:
        """Ask the session's model. Raises whatever it raises."""
        model = self._running.app.model(str(self._running.loaded.checkpoint.model))
        request = ModelRequest(
            instructions=await self._instructions(execution),
            items=self._running.loaded.shown(),
            tools=self._running.agent.specs,
            session_id=self._running.loaded.session_id,
            turn_id=execution.turn_id,
            step_id=step_id,
        )
        return await model.respond(request, emit)

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
        result = await run_tool(
            self._running.agent.toolbox,
            asked,
            context,
            threads=self._running.threads,
            log=self._running.log,
        )
        await reached(Moment.TOOL_DONE, self._running.loaded.session_id, call.call_id)
        return result

    def effect_of(self, name: str) -> Effect:
        """What a tool may do twice. One that is not here does nothing at all."""
        known = self._running.agent.toolbox.get(name)
        return Effect.PURE if known is None else known.effect

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

"""What a session's agent is given when its model is asked and its tools are run."""

from __future__ import annotations

from typing import Any

from structlog.typing import FilteringBoundLogger

from changeover_shared._checkpoint import Execution, PendingCall
from changeover_shared._items import ToolCall, ToolResult
from changeover_shared._words import Effect
from changeover_worker._agent import Agent, TurnContext
from changeover_worker._app import App
from changeover_worker._models.model import Emit, ModelError, ModelRequest, ModelResponse
from changeover_worker._session.held import Held
from changeover_worker._session.loaded import Loaded
from changeover_worker._session.signals import Moment, reached
from changeover_worker._tools.context import StopSignal, ToolContext
from changeover_worker._tools.runner import run_tool
from changeover_worker._tools.threads import Threads


class AgentCalls:
    """Calls the code that an application brought, for one session."""

    def __init__(
        self,
        app: App,
        agent: Agent,
        log: FilteringBoundLogger,
        *,
        held: Held,
        loaded: Loaded,
        resources: Any,
        threads: Threads,
    ) -> None:
        self._app = app
        self._agent = agent
        self._log = log
        self._held = held
        self._loaded = loaded
        self._resources = resources
        self._threads = threads

    async def question(self, execution: Execution, step_id: str, emit: Emit) -> ModelResponse:
        """Ask the session's model. Raises whatever it raises."""
        model = self._app.model(str(self._loaded.checkpoint.model))
        request = ModelRequest(
            instructions=await self._instructions(execution),
            items=tuple(self._loaded.items),
            tools=self._agent.specs,
            session_id=self._loaded.session_id,
            turn_id=execution.turn_id,
            step_id=step_id,
        )
        return await model.respond(request, emit)

    async def run_tool(
        self, execution: Execution, call: PendingCall, signal: StopSignal
    ) -> ToolResult:
        """Run one pending call."""
        context: ToolContext[Any] = ToolContext(
            session_id=self._loaded.session_id,
            tenant=self._loaded.tenant,
            turn_id=execution.turn_id,
            call_id=call.call_id,
            fence=self._held.lease.fence,
            epoch=self._loaded.epoch,
            attempt=max(1, call.attempts),
            resources=self._resources,
            context=self._loaded.context,
            stop=signal,
        )
        asked = ToolCall(call_id=call.call_id, name=call.name, arguments=call.arguments)
        await reached(Moment.TOOL_STARTED, self._loaded.session_id, call.call_id)
        result = await run_tool(
            self._agent.toolbox, asked, context, threads=self._threads, log=self._log
        )
        await reached(Moment.TOOL_DONE, self._loaded.session_id, call.call_id)
        return result

    def effect_of(self, name: str) -> Effect:
        """What a tool may do twice. One that is not here does nothing at all."""
        known = self._agent.toolbox.get(name)
        return Effect.PURE if known is None else known.effect

    async def _instructions(self, execution: Execution) -> str:
        turn: TurnContext[Any] = TurnContext(
            session_id=self._loaded.session_id,
            tenant=self._loaded.tenant,
            turn_id=execution.turn_id,
            context=self._loaded.context,
            metadata=self._loaded.checkpoint.metadata,
            resources=self._resources,
        )
        try:
            return await self._agent.instruct(turn)
        except Exception as error:
            said = f"the instructions of agent {self._agent.name!r} failed: {error}"
            raise ModelError(kind="instructions", message=said, retryable=False) from error

"""The app under test, with an eye on what its models are asked and which tools start."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

from changeover_shared._events import StepCompleted, ToolCallBegin, ToolCallEnd
from changeover_shared._items import Item, UserMessage
from changeover_shared._words import Effect, StepEnding
from changeover_worker._agent import Agent
from changeover_worker._app import App
from changeover_worker._handler import Handler, Turn
from changeover_worker._models.model import (
    Emit,
    EmitRefused,
    Model,
    ModelDelta,
    ModelRequest,
    ModelResponse,
    TextDelta,
)
from changeover_worker._session.signals import Moment
from changeover_worker._turn.durable import DurableCall, StepCall
from changeover_worker.testing._promises import unpaired
from changeover_worker.testing._tap import Life, Tap
from changeover_worker.testing._world import World

AT_WORK: ContextVar[Tap] = ContextVar("the worker that this code runs in")


@dataclass
class Watch:
    """What was seen while a case ran, and what was wrong with it."""

    world: World
    asked: list[str] = field(default_factory=list)
    """The step ids that models were asked for."""
    started: dict[tuple[str, str, str], int] = field(default_factory=dict)
    """How often each call started: (session, turn, call id)."""
    early: set[tuple[str, str, str]] = field(default_factory=set)
    """The calls, or steps of handlers, that started before an event told of them."""
    steps: dict[tuple[str, str, str], int] = field(default_factory=dict)
    """How often each handler's step ran: (session, turn, name)."""
    emitted: dict[str, list[str]] = field(default_factory=dict)
    """What models have said while they streamed, piece by piece, by step id."""
    wrong: list[str] = field(default_factory=list)
    """Promises that were broken on the way."""

    def asks(self, request: ModelRequest) -> None:
        """A model is asked."""
        self.wrong += [f"G7: the model was shown {what}" for what in misfits(request.items)]
        self.asked.append(request.step_id)
        if _holds() and self._is_over(request):
            self.wrong.append(f"G5: step {request.step_id} was asked again after its end")

    def runs(self, turn: Turn[Any], step: StepCall) -> None:
        """A handler's step is about to be run."""
        ran = (turn.session_id, turn.turn_id, step.name)
        self.steps[ran] = self.steps.get(ran, 0) + 1
        if step.effect is Effect.ONCE and self.steps[ran] > 1 + step.retries:
            self.wrong.append(f"G6: step {step.name!r} is `once` and ran {self.steps[ran]} times")
        if ran in self.world.recorded and _holds():
            self.wrong.append(f"G5: step {step.name!r} ran again after its result")

    async def moment(self, moment: Moment, session_id: str, detail: str) -> None:
        """A session has reached a moment."""
        if moment is not Moment.TOOL_STARTED:
            return
        seen = self.world.follow(session_id).seen
        # Not the newest turn of the journal: a thawed worker's is one that is long over.
        call = (session_id, AT_WORK.get().turns.get(session_id, ""), detail)
        self.started[call] = self.started.get(call, 0) + 1
        ended = any(
            isinstance(event, ToolCallEnd) and (event.turn_id, event.call_id) == call[1:]
            for event in seen
        )
        if ended and _holds():
            self.wrong.append(f"G5: call {detail} started again after its result")
        begun = any(isinstance(e, ToolCallBegin) and e.call_id == detail for e in seen)
        if not begun:
            self.early.add(call)

    def _is_over(self, request: ModelRequest) -> bool:
        return any(
            isinstance(event, StepCompleted)
            and event.step_id == request.step_id
            and event.ending is StepEnding.COMPLETED
            for event in self.world.follow(request.session_id).seen
        )


def watched(app: App, watch: Watch) -> App:
    """The same app; what its models are asked and which handlers' steps run is noted."""
    twin = copy.copy(app)
    twin._agents = {name: _watched_agent(agent, watch) for name, agent in app.agents.items()}
    twin._models = {name: _WatchedModel(app.model(name), watch) for name in app.model_names}
    return twin


def misfits(items: Sequence[Item]) -> list[str]:
    """What keeps a conversation from being valid for every provider."""
    found = []
    if not items or not isinstance(items[0], UserMessage):
        found.append(f"a conversation that begins with {items[0].type if items else 'nothing'}")
    return found + unpaired(items)


def _holds() -> bool:
    """Whether the code runs in a worker that has not been thawed: what it finds there it may
    do twice, since nothing outside Redis is fenced."""
    tap = AT_WORK.get(None)
    return tap is None or tap.life is not Life.THAWED


def _watched_agent(agent: Agent, watch: Watch) -> Agent:
    if not isinstance(agent, Handler):
        return agent
    function = agent.function

    async def handler(turn: Turn[Any]) -> Any:
        return await function(replace(turn, calls=_WatchedCalls(turn, watch)))

    return replace(agent, function=handler)


class _WatchedCalls:
    """A handler's durable calls; a step's function says when it runs."""

    def __init__(self, turn: Turn[Any], watch: Watch) -> None:
        self._turn = turn
        self._watch = watch

    async def carry_out(self, call: DurableCall) -> Any:
        if not isinstance(call, StepCall):
            return await self._turn.calls.carry_out(call)
        step = call

        async def noted() -> Any:
            self._watch.runs(self._turn, step)
            return await step.function()

        return await self._turn.calls.carry_out(replace(step, function=noted))


class _WatchedModel:
    def __init__(self, model: Model, watch: Watch) -> None:
        self._model = model
        self._watch = watch

    @property
    def name(self) -> str:
        return self._model.name

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        self._watch.asks(request)

        async def noted(delta: ModelDelta) -> None:
            said = self._watch.emitted.setdefault(request.step_id, [])
            text = [delta.text] if isinstance(delta, TextDelta) else []
            said += text
            try:
                await emit(delta)
            except EmitRefused:
                del said[len(said) - len(text) :]
                raise

        return await self._model.respond(request, noted)

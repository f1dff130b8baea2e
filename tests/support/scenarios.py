"""Scenarios for the sweep: what a session may live through in a few turns, and their apps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from changeover_shared._events import AssistantSaid, Delta, TurnStarted
from changeover_shared._items import ToolResult, Usage
from changeover_worker import Agent, App, Emit, ModelRequest, ModelResponse, TextDelta, tool
from changeover_worker._models.scripted import ScriptedAnswer
from changeover_worker.testing import Scenario, ScriptedModel, User, call, calls, fail, say


def speaker() -> App:
    """Answers in several deltas."""
    model = ScriptedModel.by(
        lambda _: say("one two three four", usage=Usage(input_tokens=3, output_tokens=4)),
        chunk=4,
        pause=0.001,
    )
    return App(agents=[Agent("bot", model="m")], models={"m": model})


async def one_answer(user: User) -> None:
    """One message, one streamed answer."""
    assert await user.ended(await user.submit("hello")) == "completed"
    said = [entry.item.type for entry in await user.transcript()]
    assert said == ["user", "assistant"]


async def two_messages(user: User) -> None:
    """Two messages that wait behind each other."""
    first, second = await user.submit("one"), await user.submit("two")
    assert await user.ended(first) == "completed"
    assert await user.ended(second) == "completed"


def toolsmith() -> App:
    """Asks for two tools at once, one of them `once`, and then answers."""

    @tool
    async def pay() -> str:
        """Pay."""
        return "paid"

    @tool(effect="idempotent")
    async def look() -> str:
        """Look."""
        await asyncio.sleep(0.002)
        return "seen"

    def answer(request: ModelRequest) -> ScriptedAnswer:
        if isinstance(request.items[-1], ToolResult):
            return say("all done")
        return calls(call("pay", call_id="c1"), call("look", call_id="c2"), text="let me see")

    model = ScriptedModel.by(answer, chunk=6)
    return App(agents=[Agent("bot", model="m", tools=[pay, look])], models={"m": model})


async def two_tools(user: User) -> None:
    """One message that takes two tools."""
    assert await user.ended(await user.submit("go")) == "completed"


class Hanging:
    """Says something and then goes on for ever."""

    name = "hanging"

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        await emit(TextDelta("once upon a time "))
        await asyncio.Event().wait()
        raise AssertionError("it waits for ever")


def rambler() -> App:
    """Never comes to an end by itself."""
    return App(agents=[Agent("bot", model="m")], models={"m": Hanging()})


async def interrupt_in_mid_stream(user: User) -> None:
    """Somebody stops an answer while it streams."""
    asked = await user.submit("tell me a story")
    await user.until(lambda event: isinstance(event, Delta))
    assert await user.interrupt(reason="enough")
    assert await user.ended(asked) == "aborted"


async def drain_in_mid_turn(user: User) -> None:
    """A worker is drained while a turn runs."""
    asked = await user.submit("go")
    await user.until(lambda event: isinstance(event, TurnStarted))
    user.drain()
    assert await user.ended(asked) == "completed"
    assert any(isinstance(event, AssistantSaid) for event in user.events())


def refuser() -> App:
    """Its model always fails, and not in passing."""
    model = ScriptedModel.by(lambda _: fail("provider_auth", "no", after="let me"))
    return App(agents=[Agent("bot", model="m")], models={"m": model})


async def failing_model(user: User) -> None:
    """A model that fails; the next message has its turn all the same."""
    first, second = await user.submit("one"), await user.submit("two")
    assert await user.ended(first) == "failed"
    assert await user.ended(second) == "failed"


SCENARIOS: dict[str, tuple[Scenario, Callable[[], App]]] = {
    "one answer": (one_answer, speaker),
    "two messages": (two_messages, speaker),
    "two tools": (two_tools, toolsmith),
    "interrupt in mid-stream": (interrupt_in_mid_stream, rambler),
    "drain in mid-turn": (drain_in_mid_turn, toolsmith),
    "failing model": (failing_model, refuser),
}
"""Each with the app that it needs."""

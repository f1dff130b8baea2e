"""Scenarios for the sweep: what a session may live through in a few turns, and their apps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from changeover_shared._events import (
    AssistantSaid,
    Delta,
    ToolCallBegin,
    TurnCompleted,
    TurnStarted,
)
from changeover_shared._items import ToolResult, Usage, UserMessage
from changeover_shared._ops import CloseOp, SetModelOp
from changeover_worker import (
    Agent,
    App,
    Emit,
    ModelRequest,
    ModelResponse,
    OutcomeUnknown,
    TextDelta,
    Turn,
    tool,
)
from changeover_worker.testing import (
    Scenario,
    ScriptedAnswer,
    ScriptedFailure,
    ScriptedModel,
    User,
    call,
    calls,
    fail,
    say,
)


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


async def taken_back(user: User) -> None:
    """Of two messages the second is taken back while it waits."""
    first, second = await user.submit("one"), await user.submit("two")
    assert (await user.cancel(second)).word == "CANCELLED"
    assert await user.ended(second) == "cancelled"
    assert await user.ended(first) == "completed"


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


def brief() -> App:
    """Answers in one word, of which the first half streams."""
    model = ScriptedModel.by(lambda _: say("yes"), chunk=2, pause=0.001)
    return App(agents=[Agent("bot", model="m")], models={"m": model})


async def interrupt_that_nobody_has_heard_of(user: User) -> None:
    """Somebody stops an answer that is complete, and its worker does not know."""
    asked = await user.submit("is it so?")
    await user.until(lambda event: isinstance(event, Delta))
    stopped = await user.interrupt(reason="enough", heard=False)
    assert await user.ended(asked) == ("aborted" if stopped else "completed")


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


def reporter() -> App:
    """A handler of three steps, with words and a model between them."""
    model = ScriptedModel.by(lambda _: say("a summary"), chunk=4)
    app = App(models={"m": model})

    async def done() -> str:
        return "done"

    @app.handler("report")
    async def report(turn: Turn[None]) -> str:
        plan = await turn.step("plan", done, effect="pure")
        try:
            paid = await turn.step("pay", done)
        except OutcomeUnknown:
            paid = "unknown"
        await turn.say("half of it is there")
        summary = await turn.model("sum it up")
        sent = await turn.step("send", done, effect="idempotent")
        return f"{plan} {paid} {sent} {summary.message.text}"

    return app


async def three_steps(user: User) -> None:
    """A handler's turn."""
    assert await user.ended(await user.submit("report, please")) == "completed"
    text = next(e.text for e in reversed(user.events()) if isinstance(e, TurnCompleted))
    assert text in ("done done done a summary", "done unknown done a summary")


def sleeper() -> App:
    """A handler that waits for an hour between two steps."""
    app = App(models={"m": ScriptedModel()})

    async def done() -> str:
        return "done"

    @app.handler("remind")
    async def remind(turn: Turn[None]) -> str:
        await turn.step("ask", done, effect="pure")
        await turn.sleep("1h")
        return await turn.step("remind", done, effect="idempotent")

    return app


async def an_hour_of_sleep(user: User) -> None:
    """A turn that parks, and goes on by itself."""
    assert await user.ended(await user.submit("in an hour")) == "completed"
    assert "turn_parked" in [event.type for event in user.events()]


def limited() -> App:
    """Its provider asks to be left alone once, for longer than a worker waits."""
    asked: list[str] = []

    def answer(request: ModelRequest) -> ScriptedAnswer | ScriptedFailure:
        asked.append(request.step_id)
        if len(asked) == 1:
            return fail("provider_rate_limit", "slower", retryable=True, retry_after="30s")
        return say("here I am again")

    return App(agents=[Agent("bot", model="m")], models={"m": ScriptedModel.by(answer)})


async def a_rate_limit(user: User) -> None:
    """A turn that parks until its provider is to be asked again."""
    assert await user.ended(await user.submit("hello")) == "completed"


async def a_change_of_model(user: User) -> None:
    """Turns that begin and end at once, between others."""
    first, second = await user.submit("one"), await user.submit(SetModelOp(model="n"))
    third = await user.submit(SetModelOp(model="nowhere"))
    last = await user.submit(CloseOp())
    endings = [await user.ended(id) for id in (first, second, third, last)]
    assert endings == ["completed", "completed", "failed", "completed"]


def of_two_models() -> App:
    """Its session may have another model."""
    model = ScriptedModel.by(lambda _: say("yes", usage=Usage(output_tokens=1)))
    return App(agents=[Agent("bot", model="m")], models={"m": model, "n": model})


async def a_joined_turn(user: User) -> None:
    """Three messages that are one turn, and one that is not; each is answered exactly once."""
    joined = [await user.submit(text, policy="join") for text in ("one", "two", "three")]
    last = await user.submit("four")
    assert [await user.ended(id) for id in (*joined, last)] == ["completed"] * 4
    ends = [event for event in user.events() if isinstance(event, TurnCompleted)]
    assert [end.submission_ids for end in ends] == [tuple(joined), (last,)]


async def a_steered_turn(user: User) -> None:
    """A message for the running turn, which takes it in behind its tools, or comes too late."""
    asked = await user.submit("go")
    await user.until(lambda event: isinstance(event, ToolCallBegin))
    steer = await user.submit("and hurry", policy="steer")
    assert [await user.ended(id) for id in (asked, steer)] == ["completed"] * 2
    said = [e.item.text for e in await user.transcript() if isinstance(e.item, UserMessage)]
    assert said == ["go", "and hurry"]


def listener() -> App:
    """A handler that asks twice what else was said."""
    app = App(models={"m": ScriptedModel()})

    async def done() -> str:
        return "done"

    @app.handler("listen")
    async def listen(turn: Turn[None]) -> str:
        await turn.step("first", done, effect="pure")
        heard = [message.text for message in await turn.steering()]
        await turn.step("second", done, effect="pure")
        heard += [message.text for message in await turn.steering()]
        return f"heard: {', '.join(heard) or 'nothing'}"

    return app


async def a_steered_handler(user: User) -> None:
    """What a handler was told once, it is told again after a takeover."""
    asked = await user.submit("listen")
    await user.until(lambda event: isinstance(event, TurnStarted))
    steer = await user.submit("to this", policy="steer")
    assert [await user.ended(id) for id in (asked, steer)] == ["completed"] * 2
    ends = {e.submission_ids: e.text for e in user.events() if isinstance(e, TurnCompleted)}
    assert ends in (
        {(asked, steer): "heard: to this"},
        {(asked,): "heard: nothing", (steer,): "heard: nothing"},
    )


SCENARIOS: dict[str, tuple[Scenario, Callable[[], App]]] = {
    "one answer": (one_answer, speaker),
    "two messages": (two_messages, speaker),
    "a message taken back": (taken_back, speaker),
    "two tools": (two_tools, toolsmith),
    "interrupt in mid-stream": (interrupt_in_mid_stream, rambler),
    "an interrupt unheard": (interrupt_that_nobody_has_heard_of, brief),
    "drain in mid-turn": (drain_in_mid_turn, toolsmith),
    "failing model": (failing_model, refuser),
    "handler of three steps": (three_steps, reporter),
    "an hour of sleep": (an_hour_of_sleep, sleeper),
    "a rate limit": (a_rate_limit, limited),
    "a joined turn": (a_joined_turn, speaker),
    "a steered turn": (a_steered_turn, toolsmith),
    "a steered handler": (a_steered_handler, listener),
    "a change of model": (a_change_of_model, of_two_models),
}
"""Each with the app that it needs."""

"""What a model streamed and what it returned, put together: every word, call and token once."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from changeover_shared._events import StepCompleted, ToolCallEnd, TurnCompleted, Warned
from changeover_shared._items import AssistantMessage, ToolCall, ToolResult, Usage
from changeover_shared._words import Ending
from changeover_worker._agent import Agent
from changeover_worker._app import App
from changeover_worker._models.assembled import Assembled
from changeover_worker._models.model import (
    Emit,
    ModelDelta,
    ModelError,
    ModelRequest,
    ModelResponse,
    ReasoningDelta,
    TextDelta,
    TextPart,
    ToolCallDelta,
    UsageDelta,
)
from changeover_worker._tools.tool import tool
from tests.support.holding import Bench, bench, texts

EMPTY = ModelResponse(AssistantMessage())


class Streams:
    """A model of somebody's own: each answer is its deltas and what it returns."""

    name = "streams"

    def __init__(self, *answers: tuple[Sequence[ModelDelta], ModelResponse]) -> None:
        self.answers = list(answers)
        self.requests: list[ModelRequest] = []

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        self.requests.append(request)
        deltas, response = self.answers.pop(0)
        for delta in deltas:
            await emit(delta)
        return response


@tool
def echo_tool(value: str) -> dict[str, str]:
    """Echo a value."""
    return {"payload": f"raw:{value}"}


async def run(on: Bench, *answers: tuple[Sequence[ModelDelta], ModelResponse]) -> Streams:
    model = Streams(*answers)
    await on.submit("hello")
    app = App(agents=[Agent("bot", model="m", tools=[echo_tool])], models={"m": model})
    end = await on.run(app)
    assert end.how == "released", end
    return model


async def streamed(on: Bench) -> str:
    """What a program that prints only deltas has printed."""
    return "".join(texts(await on.events(), "delta"))


async def completed(on: Bench) -> TurnCompleted:
    (ended,) = [event for event in await on.events() if isinstance(event, TurnCompleted)]
    return ended


async def said(on: Bench) -> list[str]:
    """The assistant's messages in the transcript."""
    items = [entry.item for entry in await on.transcript()]
    return [item.text for item in items if isinstance(item, AssistantMessage)]


def returned(text: str, usage: Usage | None = None) -> ModelResponse:
    return ModelResponse(AssistantMessage(text=text), usage or Usage())


def deltas(*pieces: str) -> list[ModelDelta]:
    return [TextDelta(piece) for piece in pieces]


async def test_text_that_was_streamed_and_returned_is_there_once() -> None:
    """Case 003-3: the answer is the streamed text once, in one assistant message, 11/4 tokens."""
    async with bench() as on:
        usage = Usage(input_tokens=11, output_tokens=4)
        await run(on, (deltas("What time ", "is it?"), returned("What time is it?", usage)))
        ended = await completed(on)
        assert (ended.text, ended.usage) == ("What time is it?", usage)
        assert await streamed(on) == "What time is it?"
        assert await said(on) == ["What time is it?"]


async def test_streamed_text_is_the_answer_when_nothing_was_returned() -> None:
    """Case 003-4: the answer is the concatenation, without errors, in one assistant message."""
    async with bench() as on:
        whole = "I\u2019ll look into it right away."
        await run(on, (deltas("I\u2019ll look ", "into it right away."), EMPTY))
        assert await on.ending() is Ending.COMPLETED
        assert (await completed(on)).text == whole
        assert await streamed(on) == whole
        assert await said(on) == [whole]
        assert texts(await on.events(), "assistant_message") == [whole]
        assert "warning" not in await on.types()


async def test_a_text_part_that_has_streamed_is_not_said_again() -> None:
    """Case 003-5: a delta and a part with the same text are that text once."""
    async with bench() as on:
        await run(on, ([TextDelta("The sentence."), TextPart("The sentence.")], EMPTY))
        assert (await completed(on)).text == "The sentence."
        assert texts(await on.events(), "delta") == ["The sentence."]
        assert await said(on) == ["The sentence."]


async def test_what_of_a_part_has_not_streamed_is_shown() -> None:
    async with bench() as on:
        parts: list[ModelDelta] = [
            TextDelta("One, "),
            TextPart("One, two. "),
            TextPart("Three."),
        ]
        await run(on, (parts, EMPTY))
        assert (await completed(on)).text == "One, two. Three."
        assert await streamed(on) == "One, two. Three."


async def test_a_streamed_call_is_run_when_nothing_was_returned() -> None:
    """Case 003-9: the call is run, its result is the tool's, and the second answer ends the turn.
    Difference: a result is the tool's own value, not a projection of it.
    """
    async with bench() as on:
        usage = Usage(input_tokens=12, output_tokens=3)
        call = ToolCallDelta("tool-1", "echo_tool", '{"value":"sample"}')
        model = await run(
            on, ([call, UsageDelta(usage)], EMPTY), (deltas("done"), returned("done"))
        )
        assert (await completed(on)).text == "done"
        (ended,) = [event for event in await on.events() if isinstance(event, ToolCallEnd)]
        assert (ended.call_id, ended.output) == ("tool-1", {"payload": "raw:sample"})
        assert (await completed(on)).usage == usage
        (record,) = await on.turns()
        assert (record.tool_calls, record.failed_tool_calls) == (1, 0)
        asked, result = model.requests[1].items[-2:]
        assert isinstance(asked, AssistantMessage) and isinstance(result, ToolResult)
        assert [each.call_id for each in asked.tool_calls] == [result.call_id] == ["tool-1"]


async def test_streamed_calls_are_for_display_when_anything_was_returned() -> None:
    async with bench() as on:
        call = ToolCallDelta("tool-1", "echo_tool", '{"value":"sample"}')
        await run(on, ([call], returned("no need")))
        assert (await completed(on)).text == "no need"
        assert "tool_call_begin" not in await on.types()


async def test_text_beside_streamed_calls_is_kept_with_them() -> None:
    async with bench() as on:
        call = ToolCallDelta("tool-1", "echo_tool", '{"value":"sample"}')
        await run(on, ([TextDelta("Let me see."), call], EMPTY), (deltas("done"), EMPTY))
        assert await said(on) == ["Let me see.", "done"]
        items = [entry.item for entry in await on.transcript()]
        beside = next(item for item in items if isinstance(item, AssistantMessage))
        assert (beside.phase, len(beside.tool_calls)) == ("commentary", 1)


async def test_text_that_was_only_returned_is_shown_once_and_as_it_was_joined() -> None:
    """Case 003-10: answer and delta are both exactly what was returned."""
    async with bench() as on:
        whole = "Intro paragraph.\n\n## Heading"
        await run(on, ([], returned(whole)))
        assert (await completed(on)).text == whole
        assert texts(await on.events(), "delta") == [whole]
        assert await said(on) == [whole]


async def test_the_rest_of_a_text_that_streamed_in_part_is_shown() -> None:
    async with bench() as on:
        await run(on, (deltas("Half"), returned("Half and half.")))
        assert await streamed(on) == "Half and half."


async def test_what_was_returned_counts_when_it_contradicts_what_was_streamed() -> None:
    async with bench() as on:
        await run(on, (deltas("maybe"), returned("No.")))
        assert (await completed(on)).text == "No."
        assert await streamed(on) == "maybe"


STREAMED = Usage(input_tokens=9, output_tokens=3, cached_input_tokens=2)
FINAL = Usage(input_tokens=12, output_tokens=4, cached_input_tokens=1)


async def test_streamed_tokens_count_when_none_were_returned() -> None:
    """Case 003-11: 9/3/2 is counted.
    Difference: there are four counters, not five; none is kept for what was written to a cache.
    """
    async with bench() as on:
        await run(on, ([TextDelta("x"), UsageDelta(STREAMED)], returned("x")))
        assert (await completed(on)).usage == STREAMED


async def test_returned_tokens_replace_those_that_were_streamed() -> None:
    """Case 003-12: 12/4/1 is counted, neither 9/3/2 nor the sum."""
    async with bench() as on:
        await run(on, ([TextDelta("x"), UsageDelta(STREAMED)], returned("x", FINAL)))
        assert (await completed(on)).usage == FINAL
        (step,) = [event for event in await on.events() if isinstance(event, StepCompleted)]
        assert step.usage == FINAL
        (record,) = await on.turns()
        assert record.usage == FINAL


async def test_the_last_streamed_count_wins() -> None:
    async with bench() as on:
        counts = [UsageDelta(Usage(input_tokens=9)), UsageDelta(STREAMED)]
        await run(on, ([TextDelta("x"), *counts], EMPTY))
        assert (await completed(on)).usage == STREAMED


@pytest.mark.parametrize("number", [-1, 2**53, 1.5, True, "9", None])
@pytest.mark.parametrize("where", ["streamed", "returned"])
async def test_a_count_of_tokens_that_cannot_be_is_not_counted(where: str, number: object) -> None:
    async with bench() as on:
        made_up = Usage.model_construct(input_tokens=number, output_tokens=1)  # type: ignore[arg-type]
        if where == "streamed":
            answer = [UsageDelta(STREAMED), UsageDelta(made_up)], returned("x")
        else:
            answer = [UsageDelta(STREAMED)], returned("x", made_up)
        await run(on, answer)
        assert (await completed(on)).usage == STREAMED
        (warned,) = [event for event in await on.events() if isinstance(event, Warned)]
        assert (warned.code, warned.turn_id) == ("usage", "t_1")
        assert warned.step_id is not None


async def test_a_failed_step_costs_what_was_counted_while_it_streamed() -> None:
    class Breaks(Streams):
        async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
            await emit(UsageDelta(STREAMED))
            raise ModelError(kind="provider_auth", message="no", retryable=False)

    async with bench() as on:
        await on.submit("hello")
        model = Breaks()
        await on.run(App(agents=[Agent("bot", model="m")], models={"m": model}))
        (record,) = await on.turns()
        assert (record.ending, record.usage) == (Ending.FAILED, STREAMED)


async def test_a_refusal_that_was_only_streamed_is_a_refusal() -> None:
    async with bench() as on:
        await run(on, ([TextDelta("I will not.", "refusal")], EMPTY))
        ended = await completed(on)
        assert (ended.text, ended.stop) == ("I will not.", "refusal")


# The pieces, by themselves


def whole(*taken: ModelDelta, response: ModelResponse = EMPTY) -> ModelResponse:
    assembled = Assembled()
    for delta in taken:
        assembled.take(delta)
    return assembled.whole(response)


def shown(*taken: ModelDelta) -> str:
    assembled = Assembled()
    kept = [assembled.take(delta) for delta in taken]
    return "".join(delta.text for delta in kept if isinstance(delta, TextDelta))


def test_a_part_may_come_after_the_next_one_has_begun() -> None:
    pieces = [*deltas("One. Tw"), TextPart("One. "), *deltas("o."), TextPart("Two.")]
    for taken in (pieces, pieces[:-1]):
        assert whole(*taken).message.text == shown(*taken) == "One. Two."


def test_phases_are_told_apart_and_keep_their_order() -> None:
    pieces: list[ModelDelta] = [
        TextDelta("Hm. ", "commentary"),
        TextDelta("Yes"),
        TextPart("Hm. ", "commentary"),
        TextPart("Yes."),
    ]
    assert whole(*pieces).message.text == shown(*pieces) == "Hm. Yes."


def test_a_part_that_contradicts_what_was_streamed_of_it_counts() -> None:
    pieces: list[ModelDelta] = [*deltas("good", " bye"), TextPart("hello"), *deltas("!")]
    assert whole(*pieces).message.text == "hello!"
    assert shown(*pieces) == "good bye!"


def test_reasoning_is_no_text() -> None:
    assert whole(ReasoningDelta("hm"), TextDelta("x")).message.text == "x"


def test_a_blank_answer_does_not_hide_what_was_streamed() -> None:
    assert whole(*deltas("x"), response=returned(" \n")).message.text == "x"
    assert whole(*deltas(" "), response=returned("\n")).message.text == "\n"


def test_calls_are_joined_by_id_and_else_go_on_with_the_one_before() -> None:
    pieces = [
        ToolCallDelta("a", "f", '{"x"'),
        ToolCallDelta("b", "g", "{"),
        ToolCallDelta("a", "", ":1}"),
        ToolCallDelta("b", "", "}"),
        ToolCallDelta("", "h", ""),
        ToolCallDelta("", "k", '{"y":'),
        ToolCallDelta("", "", "2}"),
    ]
    calls = whole(*pieces).message.tool_calls
    made = [(call.name, call.arguments) for call in calls]
    assert made == [("f", '{"x":1}'), ("g", "{}"), ("h", "{}"), ("k", '{"y":2}')]
    assert [call.call_id for call in calls[:2]] == ["a", "b"]
    assert all(re.fullmatch(r"call_[0-9a-f]{32}", call.call_id) for call in calls[2:])


def test_returned_calls_keep_the_text_that_was_streamed_beside_them() -> None:
    call = ToolCall(call_id="a", name="f", arguments="{}")
    made = whole(
        *deltas("Wait."),
        ToolCallDelta("z", "other", "{}"),
        response=ModelResponse(AssistantMessage(phase="commentary", tool_calls=(call,))),
    )
    assert (made.message.text, made.message.tool_calls) == ("Wait.", (call,))

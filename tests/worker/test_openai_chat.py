"""Chat completions, as OpenAI and compatible servers stream them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from changeover_shared._items import (
    AssistantMessage,
    Attachment,
    Item,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from changeover_worker._models import OpenAIModel
from changeover_worker._models.model import ReasoningDelta, TextDelta, ToolCallDelta, UsageDelta
from tests.support.asking import Asked, ask, asked_of, fails
from tests.support.model_server import ModelServer, Reply, chunk, echo, echo_reply, sse, usage_chunk

Events = list[Any]


def piece(arguments: str | None = None, **fields: Any) -> dict[str, Any]:
    """One piece of a tool call; `name` goes where the dialect has it."""
    function = {"name": fields.pop("name", None), "arguments": arguments}
    return {**fields, "function": {key: part for key, part in function.items() if part is not None}}


async def streamed(*events: Any, items: tuple[Item, ...] = ()) -> Asked:
    async with asked_of("chat", Reply(sse(*events))) as (model, _):
        return await ask(model, *items)


async def sent(*items: Item) -> dict[str, Any]:
    """The request's body for a conversation."""
    async with asked_of("chat", Reply(sse(chunk("ok", finish="stop")))) as (model, server):
        await ask(model, *items)
    body: dict[str, Any] = server.requests[0].body
    return body


async def test_plain_text_streams_and_comes_whole() -> None:
    asked = await streamed(
        chunk(""), chunk("Hel"), chunk("lo ☺"), chunk(finish="stop"), usage_chunk(12, 3), "[DONE]"
    )

    assert asked.response.message == AssistantMessage(text="Hello ☺")
    assert asked.response.stop is None
    assert asked.deltas == [
        TextDelta("Hel"),
        TextDelta("lo ☺"),
        UsageDelta(Usage(input_tokens=12, output_tokens=3)),
    ]


async def test_usage_comes_in_a_last_chunk_without_choices() -> None:
    details = {
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }

    asked = await streamed(chunk("a", finish="stop"), usage_chunk(9, 5, **details), "[DONE]")

    assert asked.response.usage == Usage(
        input_tokens=9, output_tokens=5, cached_input_tokens=4, reasoning_tokens=2
    )


CALLS: dict[str, tuple[Events, list[tuple[str, str]]]] = {
    "split over chunks": (
        [
            chunk(calls=[piece("", index=0, id="c1", name="lookup")]),
            chunk(calls=[piece('{"key"', index=0)]),
            chunk(calls=[piece(': "a"}', index=0)]),
        ],
        [("c1", '{"key": "a"}')],
    ),
    "several, interleaved by index": (
        [
            chunk(calls=[piece("{", index=0, id="c1", name="lookup")]),
            chunk(calls=[piece("{", index=1, id="c2", name="lookup")]),
            chunk(calls=[piece('"k": ', index=0), piece('"k": 2}', index=1)]),
            chunk(calls=[piece("1}", index=0)]),
        ],
        [("c1", '{"k": 1}'), ("c2", '{"k": 2}')],
    ),
    "no index, joined by id": (
        [
            chunk(calls=[piece("{", id="c1", name="lookup")]),
            chunk(calls=[piece("{", id="c2", name="lookup")]),
            chunk(calls=[piece('"k": 1}', id="c1")]),
            chunk(calls=[piece('"k": 2}', id="c2")]),
        ],
        [("c1", '{"k": 1}'), ("c2", '{"k": 2}')],
    ),
    "no index and no further id, joined by position": (
        [
            chunk(calls=[piece("{", id="c1", name="lookup"), piece("{", id="c2", name="lookup")]),
            chunk(calls=[piece('"k": 1}'), piece('"k": 2}')]),
        ],
        [("c1", '{"k": 1}'), ("c2", '{"k": 2}')],
    ),
    "no index and no further id, the last one goes on": (
        [
            chunk(calls=[piece('{"k": 1}', id="c1", name="lookup")]),
            chunk(calls=[piece("{", id="c2", name="lookup")]),
            chunk(calls=[piece('"k": 2}')]),
        ],
        [("c1", '{"k": 1}'), ("c2", '{"k": 2}')],
    ),
    "a new id at a used index": (
        [
            chunk(calls=[piece('{"k": 1}', index=0, id="c1", name="lookup")]),
            chunk(calls=[piece('{"k"', index=0, id="c2", name="lookup")]),
            chunk(calls=[piece(": 2}", index=0)]),
        ],
        [("c1", '{"k": 1}'), ("c2", '{"k": 2}')],
    ),
    "an old id at a used index": (
        [
            chunk(calls=[piece("{", index=0, id="c1", name="lookup")]),
            chunk(calls=[piece('{"k": 2}', index=0, id="c2", name="lookup")]),
            chunk(calls=[piece('"k": 1}', index=0, id="c1")]),
        ],
        [("c1", '{"k": 1}'), ("c2", '{"k": 2}')],
    ),
    "the id repeated in each piece": (
        [
            chunk(calls=[piece("{", index=0, id="c1", name="lookup")]),
            chunk(calls=[piece("}", index=0, id="c1", name="lookup")]),
        ],
        [("c1", "{}")],
    ),
    "no arguments at all": (
        [chunk(calls=[piece(index=0, id="c1", name="lookup")])],
        [("c1", "{}")],
    ),
}


@pytest.mark.parametrize("finish", ["tool_calls", "stop", "made_up"])
@pytest.mark.parametrize("name", list(CALLS))
async def test_tool_calls_are_taken_however_they_come(name: str, finish: str) -> None:
    events, expected = CALLS[name]

    asked = await streamed(*events, chunk(finish=finish), "[DONE]")

    assert asked.calls == [(call_id, "lookup", text) for call_id, text in expected]
    assert asked.response.message.phase == "commentary"
    shown: dict[str, str] = {}
    for delta in asked.deltas:
        assert isinstance(delta, ToolCallDelta)
        assert delta.name == "lookup"
        shown[delta.call_id] = shown.get(delta.call_id, "") + delta.arguments
    assert {call_id: text or "{}" for call_id, text in shown.items()} == dict(expected)


async def test_whole_calls_without_index_and_id_are_calls_of_their_own() -> None:
    asked = await streamed(
        chunk(calls=[piece('{"k": 1}', name="lookup")]),
        chunk(calls=[piece('{"k": 2}', name="lookup"), piece('{"k": 3}', name="other")]),
    )

    assert [(name, text) for _, name, text in asked.calls] == [
        ("lookup", '{"k": 1}'),
        ("lookup", '{"k": 2}'),
        ("other", '{"k": 3}'),
    ]
    assert len({call_id for call_id, _, _ in asked.calls}) == 3


async def test_an_id_that_the_conversation_has_already_is_replaced() -> None:
    before = AssistantMessage(tool_calls=(ToolCall(call_id="c0", name="lookup", arguments="{}"),))

    asked = await streamed(
        chunk(calls=[piece("{", index=0, id="c0", name="lookup")]),
        chunk(calls=[piece("}", index=0, id="c0")], finish="tool_calls"),
        items=(before, ToolResult(call_id="c0", name="lookup", output=1)),
    )

    [(call_id, name, arguments)] = asked.calls
    assert call_id != "c0"
    assert (name, arguments) == ("lookup", "{}")


@pytest.mark.parametrize("done", [("[DONE]",), ()])
async def test_a_stream_without_a_finish_reason_is_whole_if_nothing_is_open(
    done: tuple[str, ...],
) -> None:
    assert (await streamed(chunk("all"), *done)).response.message.text == "all"
    whole = chunk(calls=[piece("{}", index=0, id="c1", name="lookup")])
    assert (await streamed(whole, *done)).calls == [("c1", "lookup", "{}")]


@pytest.mark.parametrize("arguments", ['{"key', "", "[1]"])
async def test_a_stream_that_ends_inside_a_call_is_cut(arguments: str) -> None:
    events = sse(chunk(calls=[piece(arguments, index=0, id="c1", name="lookup")]), "[DONE]")

    async with asked_of("chat", Reply(events)) as (model, _):
        failed = await fails(model)

    assert (failed.kind, failed.retryable) == ("provider_stream", True)
    assert "inside a call of 'lookup'" in failed.message


async def test_a_length_stop_keeps_the_text_that_came() -> None:
    asked = await streamed(chunk("half an ans"), chunk(finish="length"), "[DONE]")

    assert (asked.response.message.text, asked.response.stop) == ("half an ans", "length")


@pytest.mark.parametrize("arguments", ['{"key": "a', ""])
async def test_a_call_that_the_length_cut_off_stays_cut(arguments: str) -> None:
    asked = await streamed(
        chunk(calls=[piece("", index=0, id="c1", name="lookup")]),
        chunk(calls=[piece(arguments, index=1, id="c2", name="lookup")]),
        chunk(finish="length"),
    )

    assert asked.response.stop == "length"
    assert asked.calls == [("c1", "lookup", "{}"), ("c2", "lookup", arguments)]


async def test_a_refusal_is_text_of_its_own_phase() -> None:
    asked = await streamed(
        chunk(refusal="I can't "), chunk(refusal="do that."), chunk(finish="stop"), "[DONE]"
    )

    assert asked.response.message == AssistantMessage(text="I can't do that.", phase="refusal")
    assert asked.response.stop == "refusal"
    assert asked.deltas == [TextDelta("I can't ", "refusal"), TextDelta("do that.", "refusal")]


async def test_a_content_filter_is_a_refusal() -> None:
    asked = await streamed(chunk("Well, "), chunk(finish="content_filter"))

    assert (asked.response.message.phase, asked.response.stop) == ("refusal", "refusal")


async def test_a_finished_blank_answer_is_an_answer() -> None:
    assert (await streamed(chunk(finish="stop"))).response.message == AssistantMessage()


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_is_shown_and_not_kept(field: str) -> None:
    reasoning: dict[str, Any] = {field: "Hmm."}

    asked = await streamed(chunk(**reasoning), chunk("Yes."), chunk(finish="stop"))

    assert asked.deltas == [ReasoningDelta("Hmm."), TextDelta("Yes.")]
    assert asked.response.message == AssistantMessage(text="Yes.")


async def test_nulls_comments_and_other_choices_are_passed_over() -> None:
    nulls = {"id": None, "choices": [{"index": 0, "delta": None, "finish_reason": None}]}
    other = chunk("not this")
    other["choices"][0]["index"] = 1
    body = (": keep-alive\n\n", *sse(nulls, other, {"usage": None, "choices": None}, chunk("ok")))

    async with asked_of("chat", Reply(body)) as (model, _):
        assert (await ask(model)).streamed == "ok"


async def test_a_conversation_is_said_in_chat_messages() -> None:
    body = await sent(
        UserMessage(text="hi"),
        AssistantMessage(
            text="Looking.",
            phase="commentary",
            tool_calls=(
                ToolCall(call_id="c1", name="lookup", arguments='{"key": "a"}'),
                ToolCall(call_id="c2", name="lookup", arguments='{"key": "cut'),
            ),
            opaque=({"provider": "anthropic", "chars": 0, "calls": 0, "block": {}},),
        ),
        ToolResult(call_id="c1", name="lookup", output={"é": 1}),
        ToolResult(call_id="c2", name="lookup", output="cut off", is_error=True),
        AssistantMessage(text=" "),
        UserMessage(text="thanks"),
    )

    assert body["model"] == "m"
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}
    calls = body["messages"][2].pop("tool_calls")
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "Looking."},
        {"role": "tool", "tool_call_id": "c1", "content": '{"é": 1}'},
        {"role": "tool", "tool_call_id": "c2", "content": "error: cut off"},
        {"role": "user", "content": "thanks"},
    ]
    assert [(each["id"], each["function"]["name"]) for each in calls] == [
        ("c1", "lookup"),
        ("c2", "lookup"),
    ]
    assert [json.loads(each["function"]["arguments"]) for each in calls] == [
        {"key": "a"},
        {"unparsed": '{"key": "cut'},
    ]
    [tool] = body["tools"]
    assert tool["function"]["name"] == "lookup"
    assert tool["function"]["parameters"]["properties"] == {"key": {"type": "string"}}


async def test_images_go_by_address_and_other_files_as_a_line() -> None:
    body = await sent(
        UserMessage(
            text="look",
            attachments=(
                Attachment(url="https://x.example/a", media_type="image/png"),
                Attachment(url="https://x.example/b.JPG?v=1"),
                Attachment(url="https://x.example/c.pdf", media_type="application/pdf", name="C"),
                Attachment(url="s3://bucket/d.png"),
            ),
        ),
    )

    text, first, second = body["messages"][1]["content"]
    assert text["text"] == (
        "look\n[attachment: https://x.example/c.pdf (C, application/pdf)]\n"
        "[attachment: s3://bucket/d.png]"
    )
    assert [part["image_url"]["url"] for part in (first, second)] == [
        "https://x.example/a",
        "https://x.example/b.JPG?v=1",
    ]


async def test_options_are_sent_as_they_are() -> None:
    async with ModelServer(Reply(sse(chunk("ok", finish="stop")))) as server:
        options = {"temperature": 0, "stream_options": None}
        model = OpenAIModel("m", base_url=server.url, options=options)
        await ask(model)
        await model.aclose()

    body = server.requests[0].body
    assert (body["temperature"], body["stream_options"]) == (0, None)


async def test_the_echo_server_calls_its_tool_once_and_then_answers() -> None:
    text = "é" * 100_000 + "[tool]"
    async with ModelServer(answer=echo_reply) as server:
        model = OpenAIModel("m", base_url=server.url)
        first = await ask(model, UserMessage(text=text))
        [(call_id, name, _)] = first.calls
        result = ToolResult(call_id=call_id, name=name, output="found")
        second = await ask(model, UserMessage(text=text), first.response.message, result)
        await model.aclose()

    assert name == "lookup"
    assert second.response.message.text == echo(text)

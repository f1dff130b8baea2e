"""Anthropic's messages, as they stream."""

from __future__ import annotations

from typing import Any

import pytest

from changeover_shared._errors import Invalid
from changeover_shared._items import (
    AssistantMessage,
    Attachment,
    Item,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from changeover_worker._models import AnthropicModel
from changeover_worker._models.model import ReasoningDelta, TextDelta, ToolCallDelta, UsageDelta
from tests.support.asking import Asked, ask, asked_of, fails
from tests.support.model_server import ModelServer, Reply, sse

Event = dict[str, Any]
START: Event = {
    "type": "message_start",
    "message": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": "m",
        "stop_reason": None,
        "usage": {"input_tokens": 3, "output_tokens": 1, "cache_read_input_tokens": 4},
    },
}


def begin(place: int, block: Event) -> Event:
    return {"type": "content_block_start", "index": place, "content_block": block}


def delta(place: int, kind: str, **fields: str) -> Event:
    return {"type": "content_block_delta", "index": place, "delta": {"type": kind, **fields}}


def end(place: int) -> Event:
    return {"type": "content_block_stop", "index": place}


def stop(reason: str = "end_turn", **fields: Any) -> list[Event]:
    change = {"stop_reason": reason, "stop_sequence": None, **fields}
    counts = {"output_tokens": 5, "output_tokens_details": {"thinking_tokens": 2}}
    return [
        {"type": "message_delta", "delta": change, "usage": counts},
        {"type": "message_stop"},
    ]


def text(place: int, *pieces: str) -> list[Event]:
    deltas = [delta(place, "text_delta", text=piece) for piece in pieces]
    return [begin(place, {"type": "text", "text": ""}), *deltas, end(place)]


def used(place: int, call_id: str, *pieces: str, closed: bool = True) -> list[Event]:
    block = {"type": "tool_use", "id": call_id, "name": "lookup", "input": {}}
    deltas = [delta(place, "input_json_delta", partial_json=piece) for piece in pieces]
    return [begin(place, block), *deltas, *([end(place)] if closed else [])]


def thought(place: int, *pieces: str, signature: str = "") -> list[Event]:
    block = {"type": "thinking", "thinking": "", "signature": ""}
    deltas = [delta(place, "thinking_delta", thinking=piece) for piece in pieces]
    signed = [delta(place, "signature_delta", signature=signature)] if signature else []
    return [begin(place, block), *deltas, *signed, end(place)]


async def streamed(*events: Event, items: tuple[Item, ...] = ()) -> Asked:
    async with asked_of("messages", Reply(sse(START, *events))) as (model, _):
        return await ask(model, *items)


async def sent(*items: Item) -> dict[str, Any]:
    """The request's body for a conversation."""
    async with asked_of("messages", Reply(sse(*text(0, "ok"), *stop()))) as (model, server):
        await ask(model, *items)
    assert server.requests[0].path == "/v1/messages"
    body: dict[str, Any] = server.requests[0].body
    return body


async def test_plain_text_streams_and_comes_whole() -> None:
    ping = {"type": "ping"}

    asked = await streamed(ping, *text(0, "Hel", "lo ☺"), ping, *stop())

    assert asked.response.message == AssistantMessage(text="Hello ☺")
    assert asked.response.stop is None
    counts = Usage(input_tokens=7, output_tokens=5, cached_input_tokens=4, reasoning_tokens=2)
    assert asked.response.usage == counts
    assert asked.deltas == [
        UsageDelta(Usage(input_tokens=7, output_tokens=1, cached_input_tokens=4)),
        TextDelta("Hel"),
        TextDelta("lo ☺"),
        UsageDelta(counts),
    ]


@pytest.mark.parametrize("reason", ["tool_use", "end_turn"])
async def test_several_calls_are_joined_from_their_pieces(reason: str) -> None:
    asked = await streamed(
        *text(0, "Looking."),
        *used(1, "t1", "", '{"key"', ': "a"}'),
        *used(2, "t2"),
        *stop(reason),
    )

    assert asked.calls == [("t1", "lookup", '{"key": "a"}'), ("t2", "lookup", "{}")]
    assert (asked.response.message.text, asked.response.message.phase) == (
        "Looking.",
        "commentary",
    )
    shown = [each.arguments for each in asked.deltas if isinstance(each, ToolCallDelta)]
    assert shown == ["", "", '{"key"', ': "a"}', ""]


async def test_a_call_that_comes_whole_is_taken_as_well() -> None:
    block = {"type": "tool_use", "id": "t1", "name": "lookup", "input": {"k": 1}}

    asked = await streamed(begin(0, block), end(0), *stop("tool_use"))

    assert asked.calls == [("t1", "lookup", '{"k": 1}')]


@pytest.mark.parametrize(
    "events",
    [
        text(0, "half")[:-1],
        used(0, "t1", "{}", closed=False),
        [*text(0, "whole"), *used(1, "t1", '{"k', closed=False)],
        [],
    ],
)
async def test_a_stream_that_ends_with_something_open_is_cut(events: list[Event]) -> None:
    async with asked_of("messages", Reply(sse(START, *events))) as (model, _):
        failed = await fails(model)

    assert (failed.kind, failed.retryable) == ("provider_stream", True)


async def test_a_stream_without_its_last_event_is_whole_if_nothing_is_open() -> None:
    assert (await streamed(*text(0, "all"))).response.message.text == "all"
    assert (await streamed(*used(0, "t1"))).calls == [("t1", "lookup", "{}")]


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded"])
@pytest.mark.parametrize("arguments", ['{"ke', ""])
async def test_a_length_stop_keeps_what_came_and_marks_the_cut_call(
    reason: str, arguments: str
) -> None:
    asked = await streamed(
        *text(0, "Let me"), *used(1, "t1"), *used(2, "t2", arguments), *stop(reason)
    )

    assert asked.response.stop == "length"
    assert asked.response.message.text == "Let me"
    assert asked.calls == [("t1", "lookup", "{}"), ("t2", "lookup", arguments)]


async def test_a_refusal_is_of_its_own_phase_and_says_why() -> None:
    details = {"type": "refusal", "category": None, "explanation": "Not that."}

    silent = await streamed(*stop("refusal", stop_details=details))
    partial = await streamed(*text(0, "Well, "), *stop("refusal", stop_details=details))

    assert silent.response.message == AssistantMessage(text="Not that.", phase="refusal")
    assert silent.deltas[-2] == TextDelta("Not that.", "refusal")
    assert partial.response.message == AssistantMessage(text="Well, ", phase="refusal")
    assert (silent.response.stop, partial.response.stop) == ("refusal", "refusal")


async def test_reasoning_is_shown_live_and_dropped_if_it_is_not_signed() -> None:
    asked = await streamed(*thought(0, "Hm", "m."), *text(1, "Yes."), *stop())

    assert asked.deltas[1:4] == [ReasoningDelta("Hm"), ReasoningDelta("m."), TextDelta("Yes.")]
    assert asked.response.message == AssistantMessage(text="Yes.")


async def test_signed_and_redacted_reasoning_goes_back_in_order_to_the_same_provider_only() -> None:
    hidden = {"type": "redacted_thinking", "data": "xyz"}
    events = [
        *thought(0, "First.", signature="s1"),
        *text(1, "I look."),
        *(begin(2, hidden), end(2)),
        *used(3, "t1", "{}"),
        *thought(4, "Then.", signature="s2"),
        *used(5, "t2", '{"k": 1}'),
        *stop("tool_use"),
    ]
    replies = (Reply(sse(START, *events)), Reply(sse(*text(0, "ok"), *stop())))
    async with ModelServer(*replies) as server:
        model = AnthropicModel("m", base_url=server.origin)
        said = (await ask(model)).response.message
        results = [ToolResult(call_id=each, name="lookup", output=1) for each in ("t1", "t2")]
        await ask(model, UserMessage(text="hello"), said, *results)
        await model.aclose()

    call = {"type": "tool_use", "name": "lookup"}
    assert server.requests[1].body["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "First.", "signature": "s1"},
        {"type": "text", "text": "I look."},
        hidden,
        {**call, "id": "t1", "input": {}},
        {"type": "thinking", "thinking": "Then.", "signature": "s2"},
        {**call, "id": "t2", "input": {"k": 1}},
    ]
    elsewhere = await sent(UserMessage(text="hello"), said, *results)
    kinds = [each["type"] for each in elsewhere["messages"][1]["content"]]
    assert kinds == ["text", "tool_use", "tool_use"]


async def test_blocks_of_server_side_tools_are_kept_as_they_came() -> None:
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
    asked = await streamed(
        begin(0, search),
        delta(0, "input_json_delta", partial_json='{"query": '),
        delta(0, "input_json_delta", partial_json='"x"}'),
        end(0),
        *(begin(1, found), end(1)),
        *text(2, "Found."),
        *stop(),
    )

    blocks = [entry["block"] for entry in asked.response.message.opaque]
    assert blocks == [{**search, "input": {"query": "x"}}, found]
    assert asked.response.message.tool_calls == ()


async def test_a_conversation_is_said_in_alternating_messages() -> None:
    body = await sent(
        UserMessage(text="one"),
        UserMessage(
            text=" ",
            attachments=(
                Attachment(url="https://x.example/a.png"),
                Attachment(url="https://x.example/b.txt", name="b"),
            ),
        ),
        AssistantMessage(
            text=" ",
            tool_calls=(
                ToolCall(call_id="functions.lookup:0", name="lookup", arguments='{"key": "a"}'),
                ToolCall(call_id="c2", name="lookup", arguments="[1]"),
            ),
        ),
        ToolResult(call_id="functions.lookup:0", name="lookup", output="found"),
        ToolResult(call_id="c2", name="lookup", output={"no": 1}, is_error=True),
        AssistantMessage(text=""),
        UserMessage(text="thanks"),
    )

    assert (body["model"], body["stream"], body["max_tokens"]) == ("m", True, 16_384)
    assert body["system"] == "Be brief."
    [tool] = body["tools"]
    assert (tool["name"], tool["input_schema"]["type"]) == ("lookup", "object")
    call = {"type": "tool_use", "name": "lookup"}
    assert body["messages"] == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "one"},
                {"type": "image", "source": {"type": "url", "url": "https://x.example/a.png"}},
                {"type": "text", "text": "[attachment: https://x.example/b.txt (b)]"},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {**call, "id": "functions_lookup_0", "input": {"key": "a"}},
                {**call, "id": "c2", "input": {"unparsed": "[1]"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "functions_lookup_0",
                    "content": "found",
                    "is_error": False,
                },
                {
                    "type": "tool_result",
                    "tool_use_id": "c2",
                    "content": '{"no": 1}',
                    "is_error": True,
                },
                {"type": "text", "text": "thanks"},
            ],
        },
    ]


def test_an_answer_needs_room() -> None:
    with pytest.raises(Invalid, match="max_tokens"):
        AnthropicModel("m", max_tokens=0)

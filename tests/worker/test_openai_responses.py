"""OpenAI's responses, as they stream."""

from __future__ import annotations

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
from tests.support.model_server import ModelServer, Reply, sse

Event = dict[str, Any]
COUNTS = {
    "input_tokens": 9,
    "output_tokens": 5,
    "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
    "output_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 14,
}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}


def added(place: int, item: Event) -> Event:
    return {"type": "response.output_item.added", "output_index": place, "item": item}


def done(place: int, item: Event) -> Event:
    return {"type": "response.output_item.done", "output_index": place, "item": item}


def delta(kind: str, place: int, text: str) -> Event:
    return {"type": f"response.{kind}.delta", "output_index": place, "item_id": "i", "delta": text}


def ended(kind: str = "completed", *output: Event, **fields: Any) -> Event:
    response = {"id": "r", "status": kind, "output": list(output), "usage": COUNTS, **fields}
    return {"type": f"response.{kind}", "response": response}


def message(text: str = "", **fields: Any) -> Event:
    content = [{"type": "output_text", "text": text, "annotations": []}] if text else []
    return {"type": "message", "id": "m", "role": "assistant", "content": content, **fields}


def called(call_id: str, arguments: str = "", **fields: Any) -> Event:
    names = {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": "lookup"}
    return {**names, "arguments": arguments, **fields}


def spoken(place: int, *pieces: str, **fields: Any) -> list[Event]:
    """A whole text message."""
    deltas = [delta("output_text", place, piece) for piece in pieces]
    whole = message("".join(pieces), status="completed", **fields)
    return [added(place, message(**fields)), *deltas, done(place, whole)]


async def streamed(*events: Event, items: tuple[Item, ...] = ()) -> Asked:
    async with asked_of("responses", Reply(sse(*events))) as (model, _):
        return await ask(model, *items)


async def sent(*items: Item) -> dict[str, Any]:
    """The request's body for a conversation."""
    reply = Reply(sse(*spoken(0, "ok"), ended()))
    async with asked_of("responses", reply) as (model, server):
        await ask(model, *items)
    body: dict[str, Any] = server.requests[0].body
    return body


async def test_plain_text_streams_and_comes_whole() -> None:
    created = {"type": "response.created", "response": {"id": "r", "output": []}}

    asked = await streamed(created, *spoken(0, "Hel", "lo ☺"), ended())

    assert asked.response.message == AssistantMessage(text="Hello ☺")
    counts = Usage(input_tokens=9, output_tokens=5, cached_input_tokens=4, reasoning_tokens=2)
    assert asked.response.usage == counts
    assert asked.deltas == [TextDelta("Hel"), TextDelta("lo ☺"), UsageDelta(counts)]


async def test_several_calls_are_joined_from_their_pieces() -> None:
    asked = await streamed(
        added(0, called("c1")),
        delta("function_call_arguments", 0, '{"key"'),
        added(1, called("c2")),
        delta("function_call_arguments", 1, "{}"),
        delta("function_call_arguments", 0, ': "a"}'),
        done(0, called("c1", '{"key": "a"}', status="completed")),
        done(1, called("c2", "{}", status="completed")),
        ended(),
    )

    assert asked.calls == [("c1", "lookup", '{"key": "a"}'), ("c2", "lookup", "{}")]
    assert asked.response.message.phase == "commentary"
    shown = [each.arguments for each in asked.deltas if isinstance(each, ToolCallDelta)]
    assert shown == ["", '{"key"', "", "{}", ': "a"}']


@pytest.mark.parametrize(
    "events",
    [
        [done(0, called("c1", '{"k": 1}')), ended()],
        [added(0, called("c1")), done(0, called("c1", '{"k": 1}'))],
        [ended("completed", called("c1", '{"k": 1}'))],
    ],
)
async def test_calls_that_do_not_come_in_pieces_are_taken_as_well(events: list[Event]) -> None:
    asked = await streamed(*events)

    assert asked.calls == [("c1", "lookup", '{"k": 1}')]
    shown = [each.arguments for each in asked.deltas if isinstance(each, ToolCallDelta)]
    assert "".join(shown) == '{"k": 1}'


async def test_text_that_does_not_come_in_pieces_is_taken_as_well() -> None:
    assert (await streamed(ended("completed", message("all at once")))).streamed == "all at once"


async def test_a_second_message_is_a_paragraph_of_its_own() -> None:
    asked = await streamed(
        *spoken(0, "I look.", phase="commentary"),
        *spoken(1, "It is ", "7.", phase="final_answer"),
        ended(),
    )

    assert asked.response.message.text == asked.streamed == "I look.\n\nIt is 7."
    assert [entry["block"]["phase"] for entry in asked.response.message.opaque] == [
        "commentary",
        "final_answer",
    ]
    assert [each for each in asked.deltas if isinstance(each, TextDelta)] == [
        TextDelta("I look.", "commentary"),
        TextDelta("\n\nIt is "),
        TextDelta("7."),
    ]


@pytest.mark.parametrize(
    "events",
    [
        [added(0, message()), delta("output_text", 0, "half")],
        [added(0, called("c1")), delta("function_call_arguments", 0, "{}")],
        [*spoken(0, "whole"), added(1, called("c1"))],
        [added(0, {**REASONING, "encrypted_content": None})],
    ],
)
async def test_a_stream_that_ends_with_something_open_is_cut(events: list[Event]) -> None:
    async with asked_of("responses", Reply(sse(*events))) as (model, _):
        failed = await fails(model)

    assert (failed.kind, failed.retryable) == ("provider_stream", True)


async def test_a_stream_without_its_last_event_is_whole_if_nothing_is_open() -> None:
    assert (await streamed(*spoken(0, "all"))).response.message.text == "all"
    assert (await streamed(added(0, called("c1")), done(0, called("c1")))).calls == [
        ("c1", "lookup", "{}")
    ]


async def test_a_length_stop_keeps_what_came_and_marks_the_cut_call() -> None:
    asked = await streamed(
        *spoken(0, "Let me"),
        added(1, called("c1")),
        delta("function_call_arguments", 1, '{"ke'),
        done(1, called("c1", '{"ke', status="incomplete")),
        ended("incomplete", incomplete_details={"reason": "max_output_tokens"}),
    )

    assert asked.response.stop == "length"
    assert asked.calls == [("c1", "lookup", '{"ke')]
    assert asked.response.message.text == "Let me"


async def test_a_refusal_is_text_of_its_own_phase() -> None:
    whole = {**message(), "content": [{"type": "refusal", "refusal": "I can't."}]}

    asked = await streamed(
        added(0, message()), delta("refusal", 0, "I can't."), done(0, whole), ended()
    )

    assert asked.response.message == AssistantMessage(text="I can't.", phase="refusal")
    assert asked.response.stop == "refusal"
    assert asked.deltas[0] == TextDelta("I can't.", "refusal")


async def test_a_content_filter_is_a_refusal() -> None:
    asked = await streamed(
        *spoken(0, "Well"), ended("incomplete", incomplete_details={"reason": "content_filter"})
    )

    assert (asked.response.message.phase, asked.response.stop) == ("refusal", "refusal")


@pytest.mark.parametrize(
    ("event", "kind", "retryable"),
    [
        (
            ended("failed", error={"code": "server_error", "message": "Broke."}),
            "provider_server",
            True,
        ),
        (
            ended("failed", error={"code": "rate_limit_exceeded", "message": "Broke."}),
            "provider_rate_limit",
            True,
        ),
        (
            ended("failed", error={"code": "invalid_prompt", "message": "Broke."}),
            "provider_request",
            False,
        ),
        ({"type": "error", "code": None, "message": "Broke."}, "provider_stream", True),
    ],
)
async def test_a_failed_response_is_a_typed_error(event: Event, kind: str, retryable: bool) -> None:
    async with asked_of("responses", Reply(sse(*spoken(0, "half"), event))) as (model, _):
        failed = await fails(model)

    assert (failed.kind, failed.retryable) == (kind, retryable)
    assert "Broke." in failed.message


@pytest.mark.parametrize("kind", ["reasoning_summary_text", "reasoning_text"])
async def test_reasoning_is_shown_live(kind: str) -> None:
    asked = await streamed(
        added(0, REASONING), delta(kind, 0, "Hmm."), done(0, REASONING), *spoken(1, "Yes."), ended()
    )

    assert asked.deltas[0] == ReasoningDelta("Hmm.")
    assert asked.response.message.text == "Yes."


async def test_signed_reasoning_goes_back_in_order_to_the_same_provider_only() -> None:
    second = {**REASONING, "id": "rs_2", "encrypted_content": "gBBB"}
    events = [
        *(added(0, REASONING), done(0, {**REASONING, "status": None})),
        *spoken(1, "I look.", phase="commentary"),
        *(added(2, called("c1")), done(2, called("c1", "{}"))),
        *(added(3, second), done(3, second)),
        *(added(4, called("c2")), done(4, called("c2", '{"k": 1}'))),
        # What came before is summed up, and must not be taken twice.
        ended(
            "completed",
            REASONING,
            message("I look.", phase="commentary"),
            called("c1", "{}"),
            second,
            called("c2", '{"k": 1}'),
        ),
    ]
    async with ModelServer(Reply(sse(*events)), Reply(sse(*spoken(0, "ok"), ended()))) as server:
        model = OpenAIModel("m", base_url=server.url, api="responses")
        said = (await ask(model)).response.message
        results = [ToolResult(call_id=each, name="lookup", output=1) for each in ("c1", "c2")]
        await ask(model, UserMessage(text="hello"), said, *results)
        await model.aclose()

    call = {"type": "function_call", "name": "lookup"}
    assert server.requests[1].body["input"][1:] == [
        REASONING,
        {
            "type": "message",
            "role": "assistant",
            "content": "I look.",
            "phase": "commentary",
        },
        {**call, "call_id": "c1", "arguments": "{}"},
        second,
        {**call, "call_id": "c2", "arguments": '{"k": 1}'},
        {"type": "function_call_output", "call_id": "c1", "output": "1"},
        {"type": "function_call_output", "call_id": "c2", "output": "1"},
    ]
    elsewhere = await sent(UserMessage(text="hello"), said, *results)
    kinds = [each["type"] for each in elsewhere["input"]]
    assert "reasoning" not in kinds
    assert kinds.count("function_call") == 2


async def test_reasoning_that_the_provider_could_not_find_again_is_not_kept() -> None:
    bare = {"type": "reasoning", "id": "rs_1", "summary": []}

    asked = await streamed(added(0, bare), done(0, bare), *spoken(1, "Yes."), ended())

    assert asked.response.message.opaque == ()


async def test_a_conversation_is_said_in_input_items() -> None:
    body = await sent(
        UserMessage(
            text="look",
            attachments=(
                Attachment(url="https://x.example/a.png"),
                Attachment(url="https://x.example/b.txt"),
            ),
        ),
        AssistantMessage(
            text="Done.", tool_calls=(ToolCall(call_id="c1", name="lookup", arguments=""),)
        ),
        ToolResult(call_id="c1", name="lookup", output=["x"], is_error=True),
        UserMessage(text="thanks"),
    )

    assert (body["model"], body["stream"], body["store"]) == ("m", True, False)
    assert body["instructions"] == "Be brief."
    [tool] = body["tools"]
    assert (tool["type"], tool["name"], tool["strict"]) == ("function", "lookup", False)
    assert body["input"] == [
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "look"},
                {"type": "input_text", "text": "[attachment: https://x.example/b.txt]"},
                {
                    "type": "input_image",
                    "detail": "auto",
                    "image_url": "https://x.example/a.png",
                },
            ],
        },
        {"type": "message", "role": "assistant", "content": "Done."},
        {"type": "function_call", "call_id": "c1", "name": "lookup", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": 'error: ["x"]'},
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "thanks"}],
        },
    ]

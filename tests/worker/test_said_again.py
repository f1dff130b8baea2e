"""What some model once said, each provider can read again, or the session could never go on."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from changeover_shared._items import (
    AssistantMessage,
    Item,
    ToolCall,
    ToolResult,
    UserMessage,
)
from tests.support.asking import ask, asked_of, fails
from tests.support.model_server import Reply, error, sse

APIS = ["chat", "responses", "messages"]


def called(**given: str) -> tuple[Item, ...]:
    """A conversation in which a tool was called, and its result."""
    call = ToolCall(**{"call_id": "c1", "name": "lookup", "arguments": "{}", **given})
    result = ToolResult(call_id=call.call_id, name=call.name, output="no such tool", is_error=True)
    return UserMessage(text="hi"), AssistantMessage(tool_calls=(call,)), result


async def said_again(api: str, items: tuple[Item, ...]) -> dict[str, Any]:
    """The call as the next request says it: `id`, `result_of`, `name`, `arguments`."""
    async with asked_of(api, error(418, "enough")) as (model, server):
        assert "answered 418" in (await fails(model, *items)).message
    body = server.requests[0].body
    if api == "responses":
        _, call, result = body["input"]
        arguments = json.loads(call["arguments"])
        return {**call, "id": call["call_id"], "result_of": result["call_id"], "args": arguments}
    if api == "messages":
        _, (call,), (result,) = (message["content"] for message in body["messages"])
        return {**call, "result_of": result["tool_use_id"], "args": call["input"]}
    *_, asked, result = body["messages"]
    (call,) = asked["tool_calls"]
    function = call["function"]
    arguments = json.loads(function["arguments"])
    known = {"id": call["id"], "result_of": result["tool_call_id"], "args": arguments}
    return {**function, **known}


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("lookup", "lookup"),
        ("functions.lookup", "functions_lookup"),
        ('lookup" path="a', "lookup__path__a"),
        ("x" * 200, "x" * 64),
        ("", "unnamed"),
    ],
)
async def test_a_name_that_no_tool_can_have_is_written_as_one(
    api: str, name: str, written: str
) -> None:
    assert (await said_again(api, called(name=name)))["name"] == written


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("arguments", ['{"most": NaN}', '{"most": 1e999}', '{"most": -Infinity}'])
async def test_arguments_that_hold_what_is_no_number_are_written_as_text(
    api: str, arguments: str
) -> None:
    written = await said_again(api, called(arguments=arguments))
    assert written["args"] == {"unparsed": arguments}


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("call_id", ["c1", "functions.lookup:0", "call_" + "x" * 1000])
async def test_an_id_is_the_same_for_a_call_and_its_result(api: str, call_id: str) -> None:
    written = await said_again(api, called(call_id=call_id))
    assert written["id"] == written["result_of"]
    if api == "responses":
        assert len(written["id"]) <= 64
    if api == "messages":
        assert re.fullmatch("[a-zA-Z0-9_-]+", written["id"])


@pytest.mark.parametrize("kind", [None, "", ["tool"], {"a": 1}])
async def test_a_block_without_a_type_does_not_go_back(kind: object) -> None:
    events = sse(
        {"type": "message_start", "message": {"usage": {"input_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": kind}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {
            "type": "content_block_delta",
            "index": 1,
            "delta": {"type": "text_delta", "text": "Well."},
        },
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    )
    async with asked_of("messages", Reply(events)) as (model, _):
        message = (await ask(model)).response.message
    assert (message.text, message.opaque) == ("Well.", ())

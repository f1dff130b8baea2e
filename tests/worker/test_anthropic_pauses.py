"""Answers that Anthropic pauses while its own tools run: they go on, and are one answer."""
# ruff: noqa: E501  the streams stand as they are sent

from __future__ import annotations

from typing import Any, Final

from changeover_shared._items import AssistantMessage, ToolResult, Usage, UserMessage
from changeover_worker import Agent, AnthropicModel, App
from tests.support.asking import ask, fails
from tests.support.holding import bench
from tests.support.model_server import ModelServer, Reply, error

PAUSED: Final = r"""
event: message_start
data: {"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":15,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Search."}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"EqgfCio"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"I search. "}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: content_block_start
data: {"type":"content_block_start","index":2,"content_block":{"type":"server_tool_use","id":"srvtoolu_a","name":"web_search","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"query\""}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":":\"x\"}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":2}

event: content_block_start
data: {"type":"content_block_start","index":3,"content_block":{"type":"web_search_tool_result","tool_use_id":"srvtoolu_a","content":[{"type":"web_search_result","url":"https://example.org/","title":"Example","encrypted_content":"EqgfCio","page_age":null}]}}

event: content_block_stop
data: {"type":"content_block_stop","index":3}

event: content_block_start
data: {"type":"content_block_start","index":4,"content_block":{"type":"server_tool_use","id":"srvtoolu_b","name":"web_search","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":4,"delta":{"type":"input_json_delta","partial_json":"{\"query\":\"y\"}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":4}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"pause_turn","stop_sequence":null,"container":{"id":"container_01","expires_at":"2026-01-01T00:00:00Z"}},"usage":{"output_tokens":30,"output_tokens_details":{"thinking_tokens":2}}}

event: message_stop
data: {"type":"message_stop"}

"""
AGAIN: Final = r"""
event: message_start
data: {"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":20,"cache_creation_input_tokens":0,"cache_read_input_tokens":40,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"web_search_tool_result","tool_use_id":"srvtoolu_b","content":[{"type":"web_search_result","url":"https://example.org/","title":"Example","encrypted_content":"EqgfCio","page_age":null}]}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"It is "}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: content_block_start
data: {"type":"content_block_start","index":2,"content_block":{"type":"server_tool_use","id":"srvtoolu_c","name":"web_search","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"query\":\"z\"}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":2}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"pause_turn","stop_sequence":null},"usage":{"output_tokens":20,"output_tokens_details":{"thinking_tokens":2}}}

event: message_stop
data: {"type":"message_stop"}

"""
FINAL: Final = r"""
event: message_start
data: {"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":80,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"web_search_tool_result","tool_use_id":"srvtoolu_c","content":[{"type":"web_search_result","url":"https://example.org/","title":"Example","encrypted_content":"EqgfCio","page_age":null}]}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"so."}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":5,"output_tokens_details":{"thinking_tokens":2}}}

event: message_stop
data: {"type":"message_stop"}

"""

THOUGHT: Final = {"type": "thinking", "thinking": "Search.", "signature": "EqgfCio"}


def searched(name: str, query: str) -> dict[str, Any]:
    return {
        "type": "server_tool_use",
        "id": f"srvtoolu_{name}",
        "name": "web_search",
        "input": {"query": query},
    }


def found(name: str) -> dict[str, Any]:
    result = {
        "type": "web_search_result",
        "url": "https://example.org/",
        "title": "Example",
        "encrypted_content": "EqgfCio",
        "page_age": None,
    }
    return {
        "type": "web_search_tool_result",
        "tool_use_id": f"srvtoolu_{name}",
        "content": [result],
    }


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


FIRST: Final = [THOUGHT, text("I search. "), searched("a", "x"), found("a"), searched("b", "y")]
SECOND: Final = [found("b"), text("It is "), searched("c", "z")]
THIRD: Final = [found("c"), text("so.")]


def model_at(server: ModelServer, **more: Any) -> AnthropicModel:
    return AnthropicModel("m", base_url=server.origin, **more)


async def test_a_paused_answer_goes_on_at_once_and_comes_as_one() -> None:
    async with ModelServer(Reply(PAUSED), Reply(AGAIN), Reply(FINAL)) as server:
        model = model_at(server)
        asked = await ask(model)
        await model.aclose()

    assert asked.response.message.text == asked.streamed == "I search. It is so."
    assert asked.response.message.phase == "final_answer"
    assert asked.response.stop is None
    assert asked.response.usage == Usage(
        input_tokens=159, output_tokens=55, cached_input_tokens=44, reasoning_tokens=6
    )
    hello = {"role": "user", "content": [text("hello")]}
    assert [request.body["messages"] for request in server.requests] == [
        [hello],
        [hello, {"role": "assistant", "content": FIRST}],
        [hello, {"role": "assistant", "content": [*FIRST, *SECOND]}],
    ]
    assert [request.body.get("container") for request in server.requests] == [
        None,
        "container_01",
        "container_01",
    ]


async def test_the_whole_answer_goes_back_as_it_came_in_the_next_turn() -> None:
    async with ModelServer(*map(Reply, (PAUSED, AGAIN, FINAL, FINAL))) as server:
        model = model_at(server)
        said = (await ask(model)).response.message
        await ask(model, UserMessage(text="hello"), said, UserMessage(text="sure?"))
        await model.aclose()

    body = server.requests[3].body
    assert body["messages"][1]["content"] == [*FIRST, *SECOND, *THIRD]
    assert "container" not in body


async def test_a_paused_answer_is_one_step_of_its_turn() -> None:
    async with ModelServer(*map(Reply, (PAUSED, AGAIN, FINAL))) as server, bench() as on:
        model = model_at(server)
        app = App(models={"main": model}, agents=[Agent("bot", model="main")])
        await on.submit("hello")
        await on.run(app)
        await model.aclose()
        [record] = await on.turns()

    assert (record.steps, record.text) == (1, "I search. It is so.")
    assert record.usage.output_tokens == 55


async def test_a_call_in_an_answer_that_went_on_is_a_call() -> None:
    call = """\
event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_a","name":"lookup","input":{}}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":5}}

event: message_stop
data: {"type":"message_stop"}

"""
    async with ModelServer(Reply(PAUSED), Reply(call)) as server:
        model = model_at(server)
        asked = await ask(model)
        said, result = (
            asked.response.message,
            ToolResult(call_id="toolu_a", name="lookup", output=1),
        )
        await fails(model, UserMessage(text="hello"), said, result)
        await fails(model, UserMessage(text="hello"), said, result, UserMessage(text="and?"))
        await model.aclose()

    assert asked.calls == [("toolu_a", "lookup", "{}")]
    assert said.phase == "commentary"
    used = {"type": "tool_use", "id": "toolu_a", "name": "lookup", "input": {}}
    for request in server.requests[2:]:
        content = request.body["messages"][1]["content"]
        assert content == [*FIRST, used], "the search beside it is run when the call has its result"


async def test_an_answer_that_pauses_on_and_on_is_given_up_and_not_asked_again() -> None:
    async with ModelServer(answer=lambda _: Reply(PAUSED)) as server:
        model = model_at(server)
        failed = await fails(model)
        await model.aclose()

    assert (failed.kind, failed.retryable) == ("provider_stream", False)
    assert "paused its answer 11 times" in failed.message
    assert len(server.requests) == 11


async def test_a_failure_while_it_goes_on_is_the_failure_of_the_whole() -> None:
    async with ModelServer(Reply(PAUSED), error(529, "busy")) as server:
        model = model_at(server)
        failed = await fails(model)
        await model.aclose()

    assert (failed.kind, failed.retryable) == ("provider_server", True)


async def test_a_container_of_the_options_is_named_beside_what_else_they_say() -> None:
    given = {"container": {"skills": [{"type": "anthropic", "skill_id": "xlsx"}]}}
    async with ModelServer(Reply(PAUSED), Reply(FINAL)) as server:
        model = model_at(server, options=given)
        await ask(model)
        await model.aclose()

    first, second = (request.body["container"] for request in server.requests)
    assert first == given["container"]
    assert second == {**given["container"], "id": "container_01"}


def kept(provider: str, *blocks: dict[str, Any], said: str = "") -> AssistantMessage:
    """An answer with blocks of `provider` before its text."""
    entries = ({"provider": provider, "chars": 0, "calls": 0, "block": each} for each in blocks)
    return AssistantMessage(text=said, opaque=tuple(entries))


async def test_a_search_that_was_cut_off_does_not_spoil_the_conversation() -> None:
    """A request in which a server-side call has no result is refused, each time again."""
    async with ModelServer(answer=lambda _: Reply(FINAL)) as server:
        own = f"anthropic@{server.origin}"
        cut = kept(own, searched("a", "x"), said="Hm.")
        whole = kept(own, searched("b", "y"), found("b"))
        model = model_at(server)
        await ask(model, UserMessage(text="1"), cut, UserMessage(text="2"), whole)
        await ask(model, UserMessage(text="1"), cut, whole, UserMessage(text="2"))
        await model.aclose()

    for request in server.requests:
        blocks = [each for said in request.body["messages"] for each in said["content"]]
        assert searched("a", "x") not in blocks
        assert blocks.count(text("Hm.")) == 1
        assert blocks.count(searched("b", "y")) == blocks.count(found("b")) == 1

"""What providers and networks do wrong, the same for every dialect."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from typing import Any

import pytest

from changeover_shared._errors import ExtraMissing, KeyMissing
from changeover_worker._models import AnthropicModel, OpenAIModel
from changeover_worker._models.failures import retry_after
from changeover_worker._models.model import (
    EmitRefused,
    ModelDelta,
    ModelError,
    ProviderModel,
    TextDelta,
)
from tests.support.asking import KEY, ask, asked_of, fails, question
from tests.support.model_server import Reply, chunk, error, sse

APIS = ("chat", "responses", "messages")

HALF: dict[str, tuple[str, ...]] = {
    "chat": sse(chunk("Hel")),
    "responses": sse(
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {"type": "message", "id": "m", "role": "assistant", "content": []},
        },
        {
            "type": "response.output_text.delta",
            "output_index": 0,
            "content_index": 0,
            "item_id": "m",
            "delta": "Hel",
        },
    ),
    "messages": sse(
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": "Hel"},
        },
    ),
}

STATUSES = [
    (400, "provider_request", False),
    (401, "provider_auth", False),
    (403, "provider_auth", False),
    (404, "provider_request", False),
    (408, "provider_timeout", True),
    (409, "provider_server", True),
    (413, "provider_request", False),
    (422, "provider_request", False),
    (429, "provider_rate_limit", True),
    (500, "provider_server", True),
    (503, "provider_server", True),
    (529, "provider_server", True),
]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(("status", "kind", "retryable"), STATUSES)
async def test_an_error_status_is_a_typed_error(
    api: str, status: int, kind: str, retryable: bool
) -> None:
    async with asked_of(api, error(status, "No such luck.")) as (model, server):
        failed = await fails(model)

    assert (failed.kind, failed.retryable) == (kind, retryable)
    assert f"answered {status}" in failed.message
    assert "No such luck." in failed.message
    assert len(server.requests) == 1, "the SDK must not retry by itself"


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"Retry-After": "7"}, timedelta(seconds=7)),
        ({"retry-after-ms": "250", "Retry-After": "1"}, timedelta(milliseconds=250)),
        ({}, None),
    ],
)
async def test_a_rate_limit_tells_how_long_to_wait(
    api: str, headers: dict[str, str], wait: timedelta | None
) -> None:
    async with asked_of(api, error(429, "Slow down.", headers=headers)) as (model, _):
        failed = await fails(model)

    assert failed.retry_after == wait
    assert ("; the provider asks to wait" in failed.message) is (wait is not None)


@pytest.mark.parametrize(
    ("value", "wait"),
    [
        ("Wed, 21 Oct 2015 07:28:00 GMT", timedelta(0)),
        ("soon", None),
        ("inf", None),
        ("-3", None),
        ("1 Jan 99999999999 0:0:0", None),
        ("0.5", timedelta(milliseconds=500)),
    ],
)
def test_retry_after_is_read_as_seconds_or_a_date(value: str, wait: timedelta | None) -> None:
    assert retry_after({"retry-after": value}) == wait


def test_a_date_to_come_is_a_time_to_wait() -> None:
    wait = retry_after({"retry-after": "Wed, 21 Oct 2415 07:28:00 GMT"})

    assert wait is not None
    assert wait > timedelta(days=365)


@pytest.mark.parametrize("api", APIS)
async def test_a_used_up_quota_does_not_come_back_by_asking_again(api: str) -> None:
    body = '{"error": {"message": "Pay.", "type": "insufficient_quota", "code": null}}'
    reply = Reply(body, 429, {"Content-Type": "application/json"})

    async with asked_of(api, reply) as (model, _):
        failed = await fails(model)

    assert (failed.kind, failed.retryable) == ("provider_rate_limit", False)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    "text",
    [
        f"Incorrect API key provided: {KEY}.",
        "Incorrect API key provided: sk-ver****6789.",
        "Header was: Bearer another-secret",
    ],
)
async def test_a_message_never_quotes_the_key(api: str, text: str) -> None:
    async with asked_of(api, error(401, text)) as (model, server):
        failed = await fails(model)

    assert KEY in server.requests[0].headers["authorization"]
    for shown in (failed.message, str(failed), repr(failed), repr(model)):
        assert "sk-" not in shown
        assert "secret" not in shown
    assert failed.__suppress_context__


@pytest.mark.parametrize("api", APIS)
async def test_a_long_error_page_is_cut_short(api: str) -> None:
    page = Reply("<html>" + "x" * 100_000, 502, {"Content-Type": "text/html"})

    async with asked_of(api, page) as (model, _):
        failed = await fails(model)

    assert failed.kind == "provider_server"
    assert len(failed.message) < 500


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply(then="cut", head=False), "provider_connection"),
        (Reply(then="cut"), "provider_stream"),
        (Reply(), "provider_stream"),
        (Reply(sse("{not json")), "provider_stream"),
        (Reply(sse("[1, 2]")), "provider_stream"),
        (Reply(": only a comment\n\n"), "provider_stream"),
        (Reply('{"a": 1}', headers={"Content-Type": "application/json"}), "provider_stream"),
    ],
)
async def test_nothing_or_nonsense_is_a_stream_that_may_be_asked_again(
    api: str, reply: Reply, kind: str
) -> None:
    async with asked_of(api, reply) as (model, _):
        failed = await fails(model)

    assert (failed.kind, failed.retryable) == (kind, True)


@pytest.mark.parametrize("api", APIS)
async def test_a_stream_that_breaks_off_is_an_error_and_shows_what_came(api: str) -> None:
    seen: list[ModelDelta] = []

    async def emit(delta: ModelDelta) -> None:
        seen.append(delta)

    async with asked_of(api, Reply(HALF[api], then="cut")) as (model, _):
        with pytest.raises(ModelError, match="broke the stream off") as caught:
            await model.respond(question(), emit)

    assert caught.value.kind == "provider_stream"
    assert seen == [TextDelta("Hel")]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("reply", [Reply(then="hang", head=False), Reply(then="hang"), None])
async def test_silence_is_a_timeout_and_closes_the_connection(
    api: str, reply: Reply | None
) -> None:
    silent = reply or Reply(HALF[api], then="hang")

    async with asked_of(api, silent, silence="100ms") as (model, server):
        failed = await fails(model)
        await server.client_left.wait()

    assert (failed.kind, failed.retryable) == ("provider_timeout", True)


@pytest.mark.parametrize("api", APIS)
async def test_a_cancelled_answer_closes_the_connection(api: str) -> None:
    begun = asyncio.Event()

    async def emit(_: ModelDelta) -> None:
        begun.set()

    async with asked_of(api, Reply(HALF[api], then="hang")) as (model, server):
        task = asyncio.create_task(model.respond(question(), emit))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.client_left.wait()


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("refusal", [EmitRefused("the step has ended"), OSError("disk full")])
async def test_what_emit_raises_leaves_as_it_is_and_closes_the_connection(
    api: str, refusal: Exception
) -> None:
    async def emit(_: ModelDelta) -> None:
        raise refusal

    async with asked_of(api, Reply(HALF[api], then="hang")) as (model, server):
        with pytest.raises(type(refusal)) as caught:
            await model.respond(question(), emit)
        await server.client_left.wait()

    assert caught.value is refusal


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    ("code", "kind", "retryable"),
    [
        ("server_error", "provider_server", True),
        ("overloaded_error", "provider_server", True),
        ("rate_limit_exceeded", "provider_rate_limit", True),
        ("invalid_request_error", "provider_request", False),
        ("authentication_error", "provider_auth", False),
        ("timeout_error", "provider_timeout", True),
        ("something_else", "provider_stream", True),
        ("502", "provider_server", True),
        pytest.param("9" * 5000, "provider_stream", True, id="no status"),
    ],
)
async def test_an_error_object_in_the_stream_is_read(
    api: str, code: str, kind: str, retryable: bool
) -> None:
    described = {"type": code, "code": code, "message": f"Not now, {KEY}."}
    event = {"error": described} if api == "chat" else {"type": "error", "error": described}

    async with asked_of(api, Reply((*HALF[api], *sse(event)))) as (model, _):
        failed = await fails(model)

    assert (failed.kind, failed.retryable) == (kind, retryable)
    assert "Not now" in failed.message
    assert KEY not in failed.message


@pytest.mark.parametrize("api", APIS)
async def test_an_address_where_nobody_listens_is_a_connection_error(api: str) -> None:
    async with asked_of(api) as (model, server):
        await server.aclose()
        failed = await fails(model)

    assert (failed.kind, failed.retryable) == ("provider_connection", True)


@pytest.mark.parametrize(
    ("model", "variable"),
    [
        (OpenAIModel("gpt-5-mini"), "OPENAI_API_KEY"),
        (AnthropicModel("claude-sonnet-4-5"), "ANTHROPIC_API_KEY"),
    ],
)
async def test_a_missing_key_is_said_at_the_start_and_by_each_request(
    model: ProviderModel, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(variable, raising=False)

    with pytest.raises(KeyMissing, match=f"set {variable} or pass api_key="):
        model.check()
    failed = await fails(model)

    assert (failed.kind, failed.retryable) == ("provider_auth", False)
    assert variable in failed.message
    monkeypatch.setenv(variable, "k")
    model.check()


@pytest.mark.parametrize("api", ["chat", "messages"])
async def test_a_compatible_server_gets_a_placeholder_for_a_key(
    api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    async with asked_of(api, error(500, "no")) as (_, server):
        model: Any = (
            OpenAIModel("m", base_url=server.url)
            if api == "chat"
            else AnthropicModel("m", base_url=server.origin)
        )
        model.check()
        await fails(model)
        await model.aclose()

    assert server.requests[0].headers["authorization"] == "Bearer unused"


@pytest.mark.parametrize(
    ("extra", "kind"), [("openai", OpenAIModel), ("anthropic", AnthropicModel)]
)
def test_a_missing_sdk_says_what_to_install(
    extra: str, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, extra, None)

    with pytest.raises(ExtraMissing, match=rf"pip install 'changeover\[{extra}\]'"):
        kind("m")


@pytest.mark.parametrize("api", APIS)
async def test_a_closed_model_can_be_asked_again(api: str) -> None:
    async with asked_of(api, error(500, "first"), error(500, "second")) as (model, _):
        assert "first" in (await fails(model)).message
        await model.aclose()
        await model.aclose()
        assert "second" in (await fails(model)).message


async def test_one_model_streams_to_a_hundred_sessions_at_once() -> None:
    replies = [Reply(sse(chunk("ok"), chunk(finish="stop"), "[DONE]")) for _ in range(100)]
    async with asked_of("chat", *replies) as (model, server):
        answers = await asyncio.gather(*(ask(model) for _ in range(100)))

    assert {asked.streamed for asked in answers} == {"ok"}
    assert len(server.requests) == 100

"""Several models behind one name: who is asked, who is left alone, and what is told of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import CapturingLogger

from changeover_shared._errors import Invalid, KeyMissing
from changeover_shared._events import TurnParked, Warned
from changeover_shared._items import AssistantMessage, Usage, UserMessage
from changeover_shared._settings import Settings
from changeover_worker import Agent, App, Fallback, Turn
from changeover_worker._models import AnthropicModel, OpenAIModel
from changeover_worker._models.model import (
    Emit,
    ModelDelta,
    ModelError,
    ModelRequest,
    ModelResponse,
    ProviderModel,
    ReasoningDelta,
    TextDelta,
    TextPart,
    ToolCallDelta,
    UsageDelta,
)
from changeover_worker._process.worker import Worker
from changeover_worker.testing import ScriptedModel, fail, say
from tests.support.asking import ask, fails, question
from tests.support.handling import app_of
from tests.support.holding import bench
from tests.support.model_server import ModelServer, Reply, chunk, error, sse


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Gated:
    """A model whose answers wait for the test."""

    name = "gated"

    def __init__(self) -> None:
        self.asked = 0
        self.began = asyncio.Event()
        self.go = asyncio.Event()

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        self.asked += 1
        self.began.set()
        await self.go.wait()
        return ModelResponse(AssistantMessage(text="from gated"))


class Half:
    """A model that emits some deltas and breaks."""

    name = "half"

    def __init__(self, *deltas: ModelDelta) -> None:
        self.asked = 0
        self._deltas = deltas

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        self.asked += 1
        for delta in self._deltas:
            await emit(delta)
        raise ModelError(kind="provider_stream", message="half broke off", retryable=True)


def failing(kind: str = "provider_server", *, retryable: bool = True, **more: Any) -> ScriptedModel:
    scripted = fail(kind, f"{kind} happened", retryable=retryable, **more)
    return ScriptedModel.always(scripted, name="first")


def spare(**more: Any) -> ScriptedModel:
    return ScriptedModel.always(say("spare answered", **more), name="second")


async def opened(first: Any, *rest: Any, clock: Clock) -> Fallback:
    """A fallback whose first model has failed five times in a row."""
    fallback = Fallback(first, *(rest or (spare(),)), clock=clock)
    for _ in range(5):
        await ask(fallback)
    return fallback


async def test_the_first_model_answers_as_long_as_it_can() -> None:
    second = spare()
    fallback = Fallback(ScriptedModel.always(say("first answered")), second)

    for _ in range(10):
        asked = await ask(fallback)
        assert asked.response.message.text == asked.streamed == "first answered"
        assert asked.response.served_by is None
    assert second.requests == []


@pytest.mark.parametrize(
    ("kind", "retryable"),
    [
        ("provider_server", True),
        ("provider_timeout", True),
        ("provider_connection", True),
        ("provider_stream", True),
        ("provider_rate_limit", True),
        ("provider_rate_limit", False),
        ("provider_auth", False),
        ("made_up", True),
    ],
)
async def test_the_next_is_asked_at_once_when_the_failure_is_only_of_one_provider(
    kind: str, retryable: bool
) -> None:
    first, second = failing(kind, retryable=retryable), spare()

    asked = await ask(Fallback(first, second))

    assert asked.response.message.text == asked.streamed == "spare answered"
    assert asked.response.served_by == "second"
    assert len(first.requests) == 1
    assert second.requests == first.requests


@pytest.mark.parametrize("kind", ["provider_request", "unscripted", "made_up"])
async def test_what_would_be_refused_again_falls_to_nobody_and_never_counts(kind: str) -> None:
    first, second = failing(kind, retryable=False), spare()
    fallback = Fallback(first, second)

    for _ in range(7):
        failed = await fails(fallback)
        assert (failed.kind, failed.message) == (kind, f"{kind} happened")
    assert len(first.requests) == 7
    assert second.requests == []


@pytest.mark.parametrize(
    "delta",
    [
        TextDelta("Hel"),
        TextPart("Hel"),
        ReasoningDelta("Hmm"),
        ToolCallDelta("c1", "lookup", ""),
    ],
)
async def test_once_something_was_shown_nobody_else_is_asked(delta: ModelDelta) -> None:
    first, second = Half(delta), spare()
    fallback = Fallback(first, second)

    for _ in range(5):
        failed = await fails(fallback)
        assert (failed.kind, failed.message) == ("provider_stream", "half broke off")
        assert second.requests == []

    assert (await ask(fallback)).response.served_by == "second", "each of the five counted"
    assert first.asked == 5


async def test_counts_are_not_output_and_those_of_a_failed_attempt_are_kept() -> None:
    spent, last = Usage(input_tokens=7, output_tokens=1), Usage(input_tokens=9, output_tokens=3)
    first = Half(UsageDelta(Usage(input_tokens=7)), UsageDelta(spent))

    asked = await ask(Fallback(first, spare(usage=last)))

    assert asked.response.usage == spent + last
    assert [each.usage for each in asked.deltas if isinstance(each, UsageDelta)][-1] == spent + last
    uncounted = await ask(Fallback(first, spare()))
    assert uncounted.response.usage == spent


async def test_counts_that_were_only_streamed_are_kept_beside_those_of_a_failed_attempt() -> None:
    class Streaming:
        name = "streaming"

        async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
            await emit(UsageDelta(Usage(output_tokens=3)))
            return ModelResponse(AssistantMessage(text="ok"))

    asked = await ask(Fallback(Half(UsageDelta(Usage(input_tokens=7))), Streaming()))

    assert asked.response.usage == Usage(input_tokens=7, output_tokens=3)


async def test_after_five_failures_in_a_row_the_first_is_left_alone_for_thirty_seconds() -> None:
    clock, first = Clock(), failing()
    fallback = await opened(first, clock=clock)

    clock.now += 29.9
    assert (await ask(fallback)).response.served_by == "second"
    assert len(first.requests) == 5
    clock.now += 0.1
    assert (await ask(fallback)).response.served_by == "second"
    assert len(first.requests) == 6
    await ask(fallback)
    assert len(first.requests) == 6, "the failed probe opened it again"


async def test_how_many_failures_and_how_long_can_be_said() -> None:
    clock, first = Clock(), failing()
    fallback = Fallback(first, spare(), failures=2, cooldown="2m", clock=clock)

    for _ in range(4):
        await ask(fallback)
    clock.now += 119.9
    await ask(fallback)

    assert len(first.requests) == 2


async def test_exactly_one_of_many_requests_probes_and_its_answer_closes_the_circuit() -> None:
    clock, gated = Clock(), Gated()
    broken: list[Any] = [fail(retryable=True)] * 5

    class Mended(ScriptedModel):
        async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
            if broken:
                raise broken.pop().error()
            return await gated.respond(request, emit)

    fallback = await opened(Mended(name="mended"), clock=clock)
    clock.now += 30
    probe = asyncio.create_task(ask(fallback))
    await gated.began.wait()

    others = await asyncio.gather(*(ask(fallback) for _ in range(20)))
    assert {each.response.served_by for each in others} == {"second"}
    assert gated.asked == 1

    gated.go.set()
    assert (await probe).response.served_by is None
    assert (await ask(fallback)).response.message.text == "from gated"
    assert gated.asked == 2


async def test_a_cancelled_probe_opens_the_circuit_again() -> None:
    clock, gated = Clock(), Gated()
    broken: list[Any] = [fail(retryable=True)] * 5

    class Mended(ScriptedModel):
        async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
            if broken:
                raise broken.pop().error()
            return await gated.respond(request, emit)

    fallback = await opened(Mended(name="mended"), clock=clock)
    clock.now += 30
    await cancelled(fallback, gated)

    clock.now += 29.9
    assert (await ask(fallback)).response.served_by == "second"
    assert gated.asked == 1
    clock.now += 0.1
    gated.go.set()
    assert (await ask(fallback)).response.served_by is None


async def cancelled(fallback: Fallback, gated: Gated) -> None:
    """Ask and cancel while the model answers."""
    gated.began.clear()
    task = asyncio.create_task(ask(fallback))
    await gated.began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancelled_request_never_counts() -> None:
    gated = Gated()
    fallback = Fallback(gated, spare())

    for _ in range(10):
        await cancelled(fallback, gated)
    gated.go.set()

    assert (await ask(fallback)).response.served_by is None


@pytest.mark.parametrize("answer", [RuntimeError("a bug"), None])
async def test_a_mistake_of_a_model_is_not_its_providers_and_falls_to_nobody(answer: Any) -> None:
    second = spare()

    class Broken:
        name = "broken"

        async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
            if answer is not None:
                raise answer
            returned: Any = answer
            return returned  # type: ignore[no-any-return]

    fallback = Fallback(Broken(), second)

    for _ in range(7):
        with pytest.raises((RuntimeError, TypeError), match=r"a bug|not a ModelResponse"):
            await ask(fallback)
    assert second.requests == []


async def test_with_all_circuits_open_the_next_probe_says_when_to_ask_again() -> None:
    clock, first, second = Clock(), failing(), failing("provider_timeout")
    fallback = Fallback(first, second, clock=clock)
    for _ in range(4):
        await fails(fallback)
    clock.now += 10
    assert (await fails(fallback)).retry_after == timedelta(seconds=30)
    clock.now += 12

    failed = await fails(fallback)

    assert (failed.kind, failed.retryable) == ("provider_unavailable", True)
    assert failed.retry_after == timedelta(seconds=18)
    assert "none could answer" in failed.message
    assert len(first.requests) == len(second.requests) == 5


async def test_the_soonest_of_several_probes_counts() -> None:
    clock = Clock()
    first = failing()
    second = ScriptedModel(*[say("ok")] * 3, *[fail(retryable=True)] * 5, name="second")
    fallback = Fallback(first, second, clock=clock)
    for _ in range(3):
        await ask(fallback)
    for _ in range(2):
        await fails(fallback)
    clock.now += 20
    for _ in range(3):
        await fails(fallback)

    failed = await fails(fallback)

    assert failed.retry_after == timedelta(seconds=10)
    assert len(first.requests) == 5


async def test_when_each_fails_the_error_says_why_and_may_be_asked_again_if_one_of_them_may() -> (
    None
):
    refused = ScriptedModel.always(fail("provider_auth", "bad key"), name="refused")
    limited = failing("provider_rate_limit", retry_after="40s")

    both = await fails(Fallback(refused, limited))
    assert (both.kind, both.retryable) == ("provider_unavailable", True)
    assert both.retry_after == timedelta(seconds=40)
    assert "bad key" in both.message
    assert "provider_rate_limit happened" in both.message

    neither = await fails(Fallback(refused, refused))
    assert (neither.retryable, neither.retry_after) == (False, None)
    assert (await fails(Fallback(limited, failing()))).retry_after is None, "one may be asked now"


async def test_the_failure_of_a_single_model_stays_what_it_is() -> None:
    failed = await fails(Fallback(failing("provider_rate_limit", retry_after="7s")))

    assert (failed.kind, failed.retry_after) == ("provider_rate_limit", timedelta(seconds=7))


NO_MODEL: Any = 7
NO_NUMBER: Any = "5"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (Fallback, "a Fallback needs at least one model"),
        (
            lambda: Fallback(Fallback(spare()), spare()),
            "a Fallback in a Fallback; write its models out in one",
        ),
        (lambda: Fallback(NO_MODEL), "7 is no model and no model string"),
        (lambda: Fallback(spare(), NO_MODEL), "7 is no model and no model string"),
        (lambda: Fallback(spare(), failures=0), "0 is no number of failures"),
        (lambda: Fallback(spare(), failures=NO_NUMBER), "'5' is no number of failures"),
        (lambda: Fallback(spare(), cooldown="soon"), "'soon' is no duration"),
    ],
)
def test_what_cannot_fall_back_is_refused(make: Callable[[], object], said: str) -> None:
    with pytest.raises(Invalid) as caught:
        make()
    assert said in str(caught.value)


def test_model_strings_are_resolved_at_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    fallback = Fallback("openai:gpt-5-mini", "no such thing")

    assert fallback.name == "fallback(openai:gpt-5-mini, no such thing)"
    assert repr(fallback) == "Fallback('openai:gpt-5-mini', 'no such thing')"
    with pytest.raises(Invalid, match="names no model"):
        fallback.check()


def test_an_app_starts_only_if_each_model_of_a_fallback_could_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    fallback = Fallback(spare(), "openai:gpt-5-mini", "anthropic:claude-sonnet-4-5")
    app = App(models={"main": fallback}, agents=[Agent("bot", model="main")])

    assert isinstance(fallback, ProviderModel)
    assert app.model_names == ("main",)
    assert app.model("main") is fallback
    with pytest.raises(KeyMissing, match="anthropic:claude-sonnet-4-5"):
        app.check()
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    app.check()


async def test_closing_an_app_closes_each_model_and_leaves_the_circuits() -> None:
    closed: list[str] = []

    class Closing(ScriptedModel):
        def check(self) -> None:
            pass

        async def aclose(self) -> None:
            closed.append(self.name)

    first = Closing.always(fail(retryable=True), name="first")
    fallback = await opened(first, Closing.always(say("ok"), name="second"), clock=Clock())

    await App(models={"main": fallback}).aclose()

    assert closed == ["first", "second"]
    await ask(fallback)
    assert len(first.requests) == 5


THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "sig"}
THINKING = sse(
    {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "thinking", "thinking": "", "signature": ""},
    },
    {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "thinking_delta", "thinking": "Hm."},
    },
    {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "signature_delta", "signature": "sig"},
    },
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": "One."}},
    {"type": "content_block_stop", "index": 1},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}},
    {"type": "message_stop"},
)


async def test_reasoning_of_one_provider_is_left_out_for_the_other_and_goes_back_later() -> None:
    async with (
        ModelServer(Reply(THINKING), error(529, "busy"), Reply(THINKING)) as theirs,
        ModelServer(Reply(sse(chunk("Two."), chunk(finish="stop"), "[DONE]"))) as others,
    ):
        first = AnthropicModel("m", base_url=theirs.origin)
        second = OpenAIModel("n", base_url=others.url)
        fallback = Fallback(first, second)
        asked = UserMessage(text="?")
        one = (await ask(fallback, asked)).response
        two = (await ask(fallback, asked, one.message, asked)).response
        await ask(fallback, asked, one.message, asked, two.message, asked)
        await fallback.aclose()

    assert [one.served_by, two.served_by] == [None, second.name]
    [elsewhere] = others.requests
    assert elsewhere.body["messages"][2] == {"role": "assistant", "content": "One."}
    assert "sig" not in str(elsewhere.body)
    again = theirs.requests[2].body["messages"]
    assert again[1]["content"] == [THOUGHT, {"type": "text", "text": "One."}]
    assert again[3]["content"] == [{"type": "text", "text": "Two."}]


async def test_the_journal_says_which_model_answered_instead() -> None:
    app = App(models={"main": Fallback(failing(), spare())}, agents=[Agent("bot", model="main")])
    async with bench() as on:
        await on.submit("hello")
        await on.run(app)
        warned = [each for each in await on.events() if isinstance(each, Warned)]

    assert [(each.code, each.text) for each in warned] == [
        ("model_fallback", "second answered instead of the model that was asked first")
    ]


async def test_a_handler_sees_who_answered_and_its_journal_says_so() -> None:
    seen: list[str | None] = []

    async def handler(turn: Turn[Any]) -> None:
        seen.append((await turn.model("plan")).served_by)

    async with bench() as on:
        await on.submit("go")
        await on.run(app_of(handler, Fallback(failing(), spare(stop="length"))))
        warned = [each.code for each in await on.events() if isinstance(each, Warned)]

    assert seen == ["second"]
    assert warned == ["length", "model_fallback"]


async def test_while_all_circuits_are_open_a_turn_parks_until_the_next_probe() -> None:
    first = failing()
    app = App(
        models={"main": Fallback(first, failures=1, clock=Clock())},
        agents=[Agent("bot", model="main")],
    )
    async with bench() as on:
        await on.submit("hello")
        before = on.stores.worker.clock.now_ms()
        end = await on.run(app)
        after = on.stores.worker.clock.now_ms()
        *_, parked = await on.events()

    assert (end.how, len(first.requests)) == ("released", 1)
    assert isinstance(parked, TurnParked)
    assert parked.until_ms is not None
    assert before <= parked.until_ms - 30_000 <= after


async def test_all_sessions_of_a_worker_learn_together_who_fails() -> None:
    first = failing()
    app = App(
        models={"main": Fallback(first, spare(), clock=Clock())},
        agents=[Agent("bot", model="main")],
    )
    async with bench() as on:
        for number in range(8):
            on.session = f"s{number}"
            await on.submit("hello")
            await on.run(app)

    assert len(first.requests) == 5


async def test_a_worker_logs_when_a_circuit_opens_and_closes() -> None:
    clock, log = Clock(), CapturingLogger()
    first = ScriptedModel(*[fail(retryable=True)] * 5, say("back"), name="first")
    fallback = Fallback(first, spare(), clock=clock)
    app = App(models={"main": fallback}, agents=[Agent("bot", model="main")])
    written: Any = log
    Worker(app, Settings(), "redis://127.0.0.1:1", log=written)

    for _ in range(6):
        await ask(fallback)
    clock.now += 30
    await ask(fallback)

    assert [(call.method_name, call.args, call.kwargs) for call in log.calls] == [
        ("warning", ("circuit_opened",), {"model": "first", "rest_s": 30.0}),
        ("info", ("circuit_closed",), {"model": "first"}),
    ]


async def test_the_question_reaches_each_model_as_it_was_asked() -> None:
    first, second = failing(), spare()

    async def emit(_: ModelDelta) -> None:
        pass

    request = question()
    await Fallback(first, second).respond(request, emit)

    assert first.requests == second.requests == [request]

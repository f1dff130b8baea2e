"""What no JSON can hold, what nests without end, what never ends: the turn bears it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from changeover_shared._events import TurnFailed
from changeover_shared._items import AssistantMessage, ToolCall, ToolResult, UserMessage
from changeover_shared._store.records import Commit
from changeover_shared._words import Ending
from changeover_worker._agent import Agent
from changeover_worker._app import App
from changeover_worker._models.contents import arguments_object, arguments_text, is_whole
from changeover_worker._models.model import (
    Emit,
    ModelDelta,
    ModelError,
    ModelRequest,
    ModelResponse,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from changeover_worker._session.heard import MAX_BYTES, Hearing
from changeover_worker._tools.tool import tool
from changeover_worker._turn.draft import Draft
from tests.support.holding import Bench, bench, texts

LONE = "\ud800"
SMILE = ("\ud83d", "\ude00")
DEEP = '{"a":' + "[" * 5000 + "]" * 5000 + "}"


class Says:
    """A model that gives its answers in turn: deltas, then a message or an error."""

    name = "says"

    def __init__(self, *answers: AssistantMessage | Exception, deltas: Sequence[ModelDelta] = ()):
        self.answers = list(answers)
        self.deltas = deltas
        self.stop: str | None = None
        self.requests: list[ModelRequest] = []

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        self.requests.append(request)
        for delta in self.deltas:
            await emit(delta)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return ModelResponse(answer, stop=self.stop)


@tool
def look(key: str) -> str:
    """Look a key up."""
    return f"found {key}"


def app_of(model: Any) -> App:
    return App(agents=[Agent("bot", model="m", tools=[look])], models={"m": model})


async def run(on: Bench, model: Any) -> None:
    await on.submit("hello")
    end = await on.run(app_of(model))
    assert end.how == "released", end


async def failure(on: Bench) -> tuple[str, str]:
    """How the only turn failed; the session is fit for the next one."""
    (failed,) = [event for event in await on.events() if isinstance(event, TurnFailed)]
    assert await on.ending() is Ending.FAILED
    await on.submit("again", "m2")
    assert (await on.run(app_of(Says(AssistantMessage(text="fine"))))).how == "released"
    assert await on.ending("m2") is Ending.COMPLETED
    return failed.error.kind, failed.error.message


def calling(call_id: str, name: str, arguments: str) -> AssistantMessage:
    call = ToolCall(call_id=call_id, name=name, arguments=arguments)
    return AssistantMessage(tool_calls=(call,), phase="commentary")


async def test_a_call_with_lone_surrogates_is_answered() -> None:
    async with bench() as on:
        asked = calling(f"c{LONE}", f"no{LONE}", f'{{"key":"{LONE}"}}')
        await run(on, Says(asked, AssistantMessage(text="done")))
        assert await on.ending() is Ending.COMPLETED
        (result,) = [e.item for e in await on.transcript() if isinstance(e.item, ToolResult)]
        assert (result.call_id, result.name, result.is_error) == ("c\ufffd", "no\ufffd", True)


async def test_arguments_with_a_lone_surrogate_reach_the_tool_readable() -> None:
    async with bench() as on:
        asked = calling("c", "look", f'{{"key":"{LONE}"}}')
        await run(on, Says(asked, AssistantMessage(text="done")))
        (result,) = [e.item for e in await on.transcript() if isinstance(e.item, ToolResult)]
        assert (result.output, result.is_error) == ("found \ufffd", False)


async def test_a_pair_split_over_two_pieces_is_one_character_in_the_committed_text() -> None:
    async with bench() as on:
        pieces = [TextDelta(piece) for piece in SMILE]
        block = {"provider": "p", "chars": 2, "calls": 0, "block": {"sig": LONE}}
        said = AssistantMessage(text="".join(SMILE) + "!", opaque=(block,))
        await run(on, Says(said, deltas=pieces))
        assert texts(await on.events(), "assistant_message") == ["\U0001f600!"]
        (item,) = [e.item for e in await on.transcript() if isinstance(e.item, AssistantMessage)]
        assert item.opaque == (
            {"provider": "p", "chars": 1, "calls": 0, "block": {"sig": "\ufffd"}},
        )


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            ModelError(kind="provider_request", message=f"bad {LONE}", retryable=False),
            ("provider_request", "bad \ufffd"),
        ),
        (ValueError(f"bad {LONE}"), ("model_crashed", "ValueError: bad \ufffd")),
        (Unspeakable(), ("model_crashed", "Unspeakable: it cannot be shown")),
    ],
)
async def test_an_error_that_json_cannot_hold_fails_its_turn_alone(
    error: Exception, told: tuple[str, str]
) -> None:
    async with bench() as on:
        await run(on, Says(error))
        assert await failure(on) == told


async def test_what_cannot_be_written_fails_its_turn_alone() -> None:
    async with bench() as on:
        block = {"provider": "p", "chars": 0, "calls": 0, "block": object()}
        await run(on, Says(AssistantMessage(text="hello", opaque=(block,))))
        kind, message = await failure(on)
        assert kind == "unwritable"
        assert "PydanticSerializationError" in message


async def test_a_first_commit_that_cannot_be_written_ends_its_submission(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encode = Draft.to_commit

    def refuses_once(draft: Draft, **given: Any) -> Commit:
        monkeypatch.setattr(Draft, "to_commit", encode)
        raise RecursionError("too deep")

    async with bench() as on:
        monkeypatch.setattr(Draft, "to_commit", refuses_once)
        await run(on, Says())
        told = ("unwritable", "what came next cannot be written: RecursionError: too deep")
        assert await failure(on) == told


async def test_a_block_that_nests_too_deep_to_be_read_again_fails_its_turn_alone() -> None:
    async with bench() as on:
        deep: Any = []
        for _ in range(190):
            deep = [deep]
        block = {"provider": "p", "chars": 0, "calls": 0, "block": {"deep": deep}}
        await run(on, Says(AssistantMessage(text="hello", opaque=(block,))))
        assert (await failure(on))[0] == "provider_stream"


@pytest.mark.parametrize("stop", [None, "length"])
async def test_deeply_nested_arguments_get_an_error_result(stop: str | None) -> None:
    async with bench() as on:
        model = Says(calling("c", "look", DEEP), AssistantMessage(text="done"))
        model.stop = stop
        await run(on, model)
        assert await on.ending() is Ending.COMPLETED
        (result,) = [e.item for e in await on.transcript() if isinstance(e.item, ToolResult)]
        assert result.is_error


def test_deeply_nested_arguments_are_no_object_for_a_provider() -> None:
    hardly_read = '{"a":' + "[" * 150 + "]" * 150 + "}"
    assert not is_whole(DEEP)
    assert arguments_object(DEEP) == {"unparsed": DEEP}
    assert arguments_object(hardly_read) == {"unparsed": hardly_read}
    assert arguments_object(arguments_text(DEEP)) == {"unparsed": DEEP}
    assert arguments_object('{"a":"\\ud800"}') == {"a": "\ufffd"}


@pytest.mark.parametrize(
    "piece",
    [TextDelta("é" * 2**19), ReasoningDelta("x" * 2**20), ToolCallDelta("c", "look", "x" * 2**20)],
)
async def test_an_answer_without_end_is_dropped(piece: ModelDelta) -> None:
    class Endless:
        name = "endless"
        pieces = 0

        async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
            while True:
                await emit(piece)
                self.pieces += 1

    async with bench() as on:
        model = Endless()
        await run(on, model)
        told = ("provider_stream", "the answer is over 16 MiB; it was dropped")
        assert await failure(on) == told
        assert model.pieces == MAX_BYTES // 2**20


def test_what_is_no_response_is_named() -> None:
    with pytest.raises(TypeError, match="returned a NoneType"):
        Hearing().answer(None)
    with pytest.raises(TypeError, match="UserMessage and Usage"):
        Hearing().answer(ModelResponse(UserMessage(text="x")))  # type: ignore[arg-type]


async def test_a_delta_from_another_event_loop_is_refused_and_harms_nobody() -> None:
    class InAThread:
        name = "in a thread"
        refused = ""

        async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
            def work() -> None:
                try:
                    asyncio.run(_emitted(emit))
                except RuntimeError as error:
                    self.refused = str(error)

            await asyncio.to_thread(work)
            return ModelResponse(AssistantMessage(text="all the same"))

    async def _emitted(emit: Emit) -> None:
        await emit(TextDelta("hel"))

    async with bench() as on:
        model = InAThread()
        await run(on, model)
        assert await on.ending() is Ending.COMPLETED
        assert "another event loop" in model.refused
        assert texts(await on.events(), "assistant_message") == ["all the same"]


class Hollow(ModelError):
    """An error that does not hold what it should."""

    def __init__(self) -> None:
        Exception.__init__(self, "hollow")


@pytest.mark.parametrize("kind", [object(), "provider_server"])
async def test_an_error_that_was_not_made_right_fails_its_turn(kind: Any) -> None:
    late = ModelError(kind=kind, message="no", retryable=False)
    late.retry_after = "soon"  # type: ignore[assignment]
    for error in (late, Hollow()):
        async with bench() as on:
            await run(on, Says(error))
            assert (await failure(on))[0] == "model_crashed"


def test_a_time_to_wait_is_a_span_of_time() -> None:
    soon: Any = 30
    with pytest.raises(TypeError, match="retry_after is a timedelta or None, not 30"):
        ModelError(kind="provider_server", message="no", retryable=True, retry_after=soon)
    timely = ModelError(
        kind="provider_server", message="no", retryable=True, retry_after=timedelta(seconds=30)
    )
    assert timely.retry_after == timedelta(seconds=30)

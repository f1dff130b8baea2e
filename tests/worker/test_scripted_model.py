from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from changeover_shared._items import AssistantMessage, UserMessage
from changeover_worker._models.model import EmitRefused, Model, ModelDelta, ModelError, TextDelta
from changeover_worker.testing import ScriptedModel, call, calls, fail, say
from tests.support.asking import ask, fails, question


async def test_a_script_is_answered_in_order() -> None:
    model = ScriptedModel(call("refund", order="7"), say("Done."))

    first = await ask(model)
    second = await ask(model, UserMessage(text="and?"), first.response.message)

    assert first.calls == [("call_1", "refund", '{"order": "7"}')]
    assert second.response.message == AssistantMessage(text="Done.")
    assert [len(request.items) for request in model.requests] == [1, 2]


async def test_an_unscripted_request_is_an_error() -> None:
    model = ScriptedModel(say("once"))
    await ask(model)

    error = await fails(model)

    assert (error.kind, error.retryable) == ("unscripted", False)


async def test_several_calls_come_in_one_step_with_words_beside_them() -> None:
    model = ScriptedModel(calls(call("a"), call("b", call_id="mine", x=1), text="Two things."))

    asked = await ask(model)

    assert asked.calls == [("call_1", "a", "{}"), ("mine", "b", '{"x": 1}')]
    assert (asked.response.message.text, asked.response.message.phase) == (
        "Two things.",
        "commentary",
    )


async def test_calls_are_numbered_by_the_conversation_and_not_by_the_process() -> None:
    script = call("again")
    asked = (await ask(ScriptedModel.always(script))).response.message

    elsewhere = await ask(ScriptedModel.always(script), asked)

    assert [call_id for call_id, _, _ in elsewhere.calls] == ["call_2"]


async def test_a_scripted_failure_streams_its_text_first() -> None:
    model = ScriptedModel(fail("provider_stream", retryable=True, retry_after="2s", after="half"))
    seen: list[ModelDelta] = []

    async def emit(delta: ModelDelta) -> None:
        seen.append(delta)

    with pytest.raises(ModelError, match="failed as scripted") as caught:
        await model.respond(question(), emit)

    assert seen == [TextDelta("half")]
    assert caught.value.retry_after == timedelta(seconds=2)


async def test_a_chosen_answer_follows_from_the_request() -> None:
    model = ScriptedModel.by(lambda asked: say(f"{len(asked.items)} items"), name="counter")

    assert (await ask(model)).streamed == "1 items"
    assert model.name == "counter"


async def test_text_is_split_into_deltas_of_the_chunk_size() -> None:
    model = ScriptedModel(say("abcdefg"), chunk=3, delay=0.001, pause=0.001)

    asked = await ask(model)

    assert [d.text for d in asked.deltas if isinstance(d, TextDelta)] == ["abc", "def", "g"]


async def test_a_refused_delta_ends_the_answer() -> None:
    async def emit(_: ModelDelta) -> None:
        raise EmitRefused("the step has ended")

    with pytest.raises(EmitRefused):
        await ScriptedModel(say("text")).respond(question(), emit)


async def test_a_slow_answer_can_be_cancelled() -> None:
    begun = asyncio.Event()

    async def emit(_: ModelDelta) -> None:
        begun.set()

    model = ScriptedModel(say("ab"), chunk=1, pause=3600)
    task = asyncio.create_task(model.respond(question(), emit))
    await begun.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_scripted_model_is_a_model_with_a_refusal_and_a_length_stop() -> None:
    assert isinstance(ScriptedModel(), Model)
    assert say("no", stop="refusal").phase == "refusal"
    assert say("half", stop="length").phase == "final_answer"

"""Models that go on although they are cancelled: nobody hears them, and nobody waits for them."""

from __future__ import annotations

import asyncio

import pytest

from changeover_shared._errors import SessionDeleted
from changeover_shared._items import AssistantMessage
from changeover_shared._ops import InterruptOp
from changeover_shared._words import Ending
from changeover_worker import _stopping
from changeover_worker._models.model import (
    Emit,
    EmitRefused,
    ModelRequest,
    ModelResponse,
    TextDelta,
)
from changeover_worker.testing import ScriptedModel, say
from tests.support.holding import Bench, bench, texts, until
from tests.support.recovering import SECOND, app_of


class Stubborn:
    """Streams a word, and another three when it is told to stop."""

    name = "stubborn"

    def __init__(self, *, may_end: bool = True) -> None:
        self.streamed = asyncio.Event()
        self.may_end = asyncio.Event()
        self.refused = 0
        self.ended = False
        if may_end:
            self.may_end.set()

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        await emit(TextDelta("first"))
        self.streamed.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            for _ in range(3):
                try:
                    await emit(TextDelta("late"))
                except EmitRefused:
                    self.refused += 1
        while not self.may_end.is_set():
            try:
                await self.may_end.wait()
            except asyncio.CancelledError:
                continue
        self.ended = True
        return ModelResponse(AssistantMessage(text="first late late late"))


async def assert_only_the_first_word_is_there(on: Bench) -> None:
    assert "".join(texts(await on.events(), "delta")) == "first"
    assert [entry.item.type for entry in await on.transcript()] == ["user"]


async def test_a_model_that_goes_on_after_an_interrupt_is_not_heard() -> None:
    """Case 001-13: what comes after the interrupt is refused, also while the model still runs."""
    async with bench() as on:
        await on.submit("go")
        model = Stubborn()
        run, held = await on.begin(app_of(model))
        await model.streamed.wait()
        await on.submit(InterruptOp(), "i1", turn="t_1")
        held.alert(1)
        assert (await run).how == "released"
        assert model.refused == 3
        assert await on.ending() is Ending.ABORTED
        await assert_only_the_first_word_is_there(on)


@pytest.mark.parametrize("how", ["interrupted", "lost", "drained"])
async def test_a_session_does_not_wait_for_a_model_that_goes_on(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case 001-12: its sink is closed, and the session is let go without it."""
    monkeypatch.setattr(_stopping, "CLEAN_UP_S", 0.01)
    async with bench() as on:
        await on.submit("go")
        model = Stubborn(may_end=False)
        run, held = await on.begin(app_of(model))
        await model.streamed.wait()
        match how:
            case "interrupted":
                await on.submit(InterruptOp(), "i1", turn="t_1")
                held.alert(1)
            case "lost":
                held.lose(SessionDeleted(session_id="s"))
            case "drained":
                held.drain_now()
        end = await run
        assert end.how == {"interrupted": "released", "drained": "handed_off"}.get(how, how)
        assert (model.refused, model.ended) == (3, False)
        before = await on.stores.dump()
        model.may_end.set()
        await until(lambda: model.ended, "the model has ended")
        await until(lambda: not _stopping._left_behind, "its task has ended")
        assert await on.stores.dump() == before
        await assert_only_the_first_word_is_there(on)
        if how == "drained":
            await on.run(app_of(ScriptedModel(say("in time"))), SECOND)
            assert await on.ending() is Ending.COMPLETED

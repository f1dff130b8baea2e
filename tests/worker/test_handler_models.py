"""A handler's model steps: asked once, kept, asked again only as agents are."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from changeover_shared._events import (
    AssistantSaid,
    Delta,
    SessionConfigured,
    StepCompleted,
)
from changeover_shared._items import AssistantMessage, UserMessage
from changeover_shared._ops import CloseOp, SetModelOp
from changeover_shared._words import Ending, Status, StepEnding
from changeover_worker import (
    ModelError,
    ModelResponse,
    Turn,
)
from changeover_worker._models.model import Emit, ModelRequest
from changeover_worker.testing import ScriptedModel, say
from tests.support.handling import Works, app_of, died_in, failure, report
from tests.support.holding import bench, texts, until


async def test_a_handler_asks_the_model_and_keeps_its_answer() -> None:
    works, seen = Works(), []

    async def handler(turn: Turn[Any]) -> None:
        seen.append(await turn.model(f"plan {turn.text}", instructions="be brief"))
        await turn.step("stuck", works.hangs("stuck"), effect="pure")

    async with bench() as on:
        model = ScriptedModel(say("a plan"))
        app = app_of(handler, model)
        await on.submit("it")
        await died_in(on, app, works, "stuck")
        run, held = await on.begin(app, "w:00000002")
        await until(lambda: works.ran["stuck"] > 1, "the step runs again")
        await on.die(run, held)
        asked = model.requests
        assert [(r.instructions, r.items) for r in asked] == [
            ("be brief", (UserMessage(text="plan it"),))
        ]
        assert seen[0] == seen[1]
        assert isinstance(seen[1], ModelResponse) and seen[1].message.text == "a plan"
        assert [type(e).wire_type for e in await on.events()][2:6] == [
            "turn_started", "step_started", "delta", "assistant_message",
        ]  # fmt: skip
        (heard,) = [e for e in await on.events() if isinstance(e, AssistantSaid)]
        assert heard.phase == "commentary"
        assert {e.phase for e in await on.events() if isinstance(e, Delta)} == {"commentary"}


async def test_an_answer_that_the_model_gave_as_such_is_shown_once() -> None:
    async def handler(turn: Turn[Any]) -> str:
        response = await turn.model(turn.messages, phase="final_answer")
        return response.message.text

    async with bench() as on:
        await on.submit("go")
        await on.run(app_of(handler, ScriptedModel(say("hello"))))
        assert texts(await on.events(), "assistant_message") == ["hello"]
        items = [e.item for e in await on.transcript()]
        assert items[-1] == AssistantMessage(text="hello")


async def test_a_model_whose_worker_died_is_asked_again_under_the_same_index() -> None:
    async def handler(turn: Turn[Any]) -> str:
        return (await turn.model("hi")).message.text

    class Hangs(ScriptedModel):
        async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
            response = await super().respond(request, emit)
            if len(self.requests) == 1:
                await asyncio.Event().wait()
            return response

    async with bench() as on:
        model = Hangs(say("half"), say("whole"))
        app = app_of(handler, model)
        await on.submit("go")
        run, held = await on.begin(app)
        await until(lambda: len(model.requests) == 1, "the model is asked")
        await on.die(run, held)
        await on.run(app, "w:00000002")
        ended = [e for e in await on.events() if isinstance(e, StepCompleted)]
        assert [(e.index, e.ending) for e in ended] == [
            (0, StepEnding.INTERRUPTED), (0, StepEnding.COMPLETED),
        ]  # fmt: skip
        assert ended[0].step_id != ended[1].step_id
        (record,) = await on.turns()
        assert (record.text, record.steps, record.takeovers) == ("whole", 1, 1)


async def test_a_model_that_fails_for_good_raises_in_every_run() -> None:
    works, seen = Works(), []

    async def handler(turn: Turn[Any]) -> None:
        try:
            await turn.model("hi")
        except ModelError as failed:
            seen.append((failed.kind, failed.message, failed.retryable))
        await turn.step("stuck", works.hangs("stuck"), effect="pure")

    class Refuses(ScriptedModel):
        async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
            works.ran["asked"] += 1
            raise ModelError(kind="provider_auth", message="no key", retryable=False)

    async with bench() as on:
        app = app_of(handler, Refuses())
        await on.submit("go")
        await died_in(on, app, works, "stuck")
        run, held = await on.begin(app, "w:00000002")
        await until(lambda: works.ran["stuck"] > 1, "the step runs again")
        await on.die(run, held)
    assert seen == [("provider_auth", "no key", False)] * 2
    assert works.ran["asked"] == 1


class Busy(ScriptedModel):
    """Fails a few times before it answers."""

    def __init__(self, *failures: ModelError) -> None:
        super().__init__(say("at last"))
        self.failures = list(failures)
        self.steps: list[str] = []

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        self.steps.append(request.step_id)
        if self.failures:
            raise self.failures.pop(0)
        return await super().respond(request, emit)


def busy(seconds: float | None = None) -> ModelError:
    wish = None if seconds is None else timedelta(seconds=seconds)
    return ModelError(kind="provider_server", message="busy", retryable=True, retry_after=wish)


async def test_a_passing_failure_is_asked_again_under_a_fresh_id() -> None:
    async def handler(turn: Turn[Any]) -> str:
        return (await turn.model("hi")).message.text

    async with bench() as on:
        model = Busy(busy(), busy())
        await on.submit("go")
        on.jitter = 0.0
        await on.run(app_of(handler, model))
        assert len(set(model.steps)) == 3
        ended = [e for e in await on.events() if isinstance(e, StepCompleted)]
        assert [(e.index, e.ending.value) for e in ended] == [
            (0, "retrying"), (0, "retrying"), (0, "completed"),
        ]  # fmt: skip
        (record,) = await on.turns()
        assert (record.text, record.steps) == ("at last", 1)


async def test_a_long_retry_after_parks_the_turn_and_its_handler_is_run_again() -> None:
    works = Works()

    async def handler(turn: Turn[Any]) -> str:
        works.ran["handler"] += 1
        await turn.step("one", works.gives("one"))
        return (await turn.model("hi")).message.text

    async with bench() as on:
        model = Busy(busy(60))
        app = app_of(handler, model)
        await on.submit("go")
        assert (await on.run(app)).how == "released"
        head = await on.stores.worker.read_head(on.session)
        assert head is not None and head.status is Status.PARKED
        await on.pass_time(60_001)
        await on.run(app, "w:00000002")
        assert (await on.turns())[0].text == "at last"
        assert works.ran == {"handler": 2, "one": 1}
        assert len(set(model.steps)) == 2


async def test_a_turn_asks_its_model_a_bounded_number_of_times() -> None:
    async def handler(turn: Turn[Any]) -> None:
        for _ in range(3):
            await turn.model("hi")

    async with bench(max_steps=2) as on:
        model = ScriptedModel(say("1"), say("2"))
        await on.submit("go")
        await on.run(app_of(handler, model))
        assert (await failure(on))[0] == "step_limit"
        assert len(model.requests) == 2


async def test_a_session_asks_the_model_that_it_has_chosen() -> None:
    async def handler(turn: Turn[Any]) -> str:
        mine = await turn.model("hi")
        other = await turn.model("hi", model="m1")
        return f"{mine.message.text} {other.message.text}"

    async with bench() as on:
        app = app_of(handler, ScriptedModel(say("one")), ScriptedModel(say("two")))
        await on.submit(SetModelOp(model="m2"), "o1")
        await on.submit("go")
        await on.run(app)
        assert (await on.turns())[1].text == "two one"


async def test_a_session_of_a_handler_without_models_runs_and_closes() -> None:
    async with bench() as on:
        app = app_of(report)
        await on.submit("one")
        await on.submit("two", "m2")
        await on.submit(CloseOp(), "c1")
        assert (await on.run(app)).how == "closed"
        assert [await on.ending(id) for id in ("m1", "m2", "c1")] == [Ending.COMPLETED] * 3
        configured = [e for e in await on.events() if isinstance(e, SessionConfigured)]
        assert [(e.agent, e.model) for e in configured] == [("bot", None)]
        assert "model_changed" not in await on.types()

"""Handlers: what an app takes, what a turn knows, and what becomes of what it returns."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from changeover_shared._errors import Invalid
from changeover_shared._events import (
    TurnCompleted,
)
from changeover_shared._items import AssistantMessage, UserMessage
from changeover_shared._ops import CompactOp, MessageOp, Op, RollbackOp
from changeover_shared._words import Ending
from changeover_worker import (
    App,
    Turn,
)
from changeover_worker.testing import ScriptedModel, say
from tests.support.handling import Works, app_of, died_in, failure, report
from tests.support.holding import bench, texts, until

# What an app takes


def test_a_handler_counts_as_an_agent_of_its_app() -> None:
    app = App(models={"first": ScriptedModel(), "second": ScriptedModel()})
    assert app.handler("report")(report) is report
    app.handler("other", model="second")(report)
    assert list(app.agents) == ["report", "other"]
    assert [agent.model for agent in app.agents.values()] == ["first", "second"]
    app.check()


def test_a_handler_has_a_policy_as_an_agent_has() -> None:
    app = App()
    app.handler("report", policy="join")(report)
    assert app.agents["report"].policy == "join"
    with pytest.raises(Invalid, match="handler 'other': 'later' is none of enqueue, steer"):
        app.handler("other", policy="later")(report)  # type: ignore[arg-type]
    assert list(app.agents) == ["report"]


def test_a_handler_needs_no_model() -> None:
    app = App()
    app.handler("report")(report)
    app.check()


async def two(turn: Turn[None], more: int) -> None: ...


async def by_name(*, turn: Turn[None]) -> None: ...


def not_async(turn: Turn[None]) -> None: ...


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (two, "it is called with the turn alone, and that does not fit: missing a required"),
        (by_name, "it is called with the turn alone"),
        (not_async, "is not async def"),
        (3, "is not async def"),
    ],
)
def test_a_function_that_cannot_handle_a_turn_is_refused(function: Any, said: str) -> None:
    app = App()
    with pytest.raises(Invalid, match=said):
        app.handler("report")(function)
    assert not app.agents


def test_a_name_is_given_once_and_a_model_is_one_of_the_app() -> None:
    app = App(models={"m": ScriptedModel()})
    app.handler("report")(report)
    with pytest.raises(Invalid, match="an agent or handler 'report' already"):
        app.handler("report")(report)
    with pytest.raises(Invalid, match="handler 'next': there is no model 'x' in this app"):
        app.handler("next", model="x")
    with pytest.raises(Invalid, match="handler"):
        app.handler("no name")(report)
    assert list(app.agents) == ["report"]


# What a turn knows and returns


async def test_a_turn_knows_what_it_answers() -> None:
    seen: list[Turn[Any]] = []

    async def handler(turn: Turn[Any]) -> str:
        seen.append(turn)
        await turn.say("a moment")
        return f"{turn.text}!"

    async with bench() as on:
        app = app_of(handler, ScriptedModel())
        await on.submit(MessageOp(text="one", metadata={"vip": True}))
        await on.submit("two", "m2")
        await on.run(app)
        first, second = seen
        assert (first.session_id, first.turn_id, first.text) == ("s", "t_1", "one")
        assert first.message == UserMessage(text="one", submission_id="m1")
        assert first.messages == (first.message,)
        assert (first.metadata, second.metadata) == ({"vip": True}, {"vip": True})
        assert [getattr(m, "text", "") for m in second.messages] == [
            "one", "a moment", "one!", "two",
        ]  # fmt: skip
        assert first.idempotency_key("pay") == "s/t_1/pay"
        assert [turn.text for turn in await on.turns()] == ["one!", "two!"]


async def test_a_replayed_turn_is_shown_the_conversation_as_it_was_when_it_began() -> None:
    works, seen = Works(), []

    async def handler(turn: Turn[Any]) -> None:
        seen.append(turn.messages)
        await turn.say("first")
        await turn.step("stuck", works.hangs("stuck"), effect="pure")

    async with bench() as on:
        app = app_of(handler)
        await on.submit("go")
        await died_in(on, app, works, "stuck")
        works.ran.clear()
        run, held = await on.begin(app, "w:00000002")
        await until(lambda: works.ran["stuck"] > 0, "the step runs again")
        await on.die(run, held)
    assert seen[0] == seen[1] == (UserMessage(text="go", submission_id="m1"),)


class Report(BaseModel):
    title: str
    pages: int


@pytest.mark.parametrize(
    ("value", "text", "output"),
    [
        ("done", "done", None),
        (Report(title="t", pages=3), "", {"title": "t", "pages": 3}),
        ({"a": [1]}, "", {"a": [1]}),
        (None, "", None),
    ],
)
async def test_what_a_handler_returns_is_the_outcome(value: Any, text: str, output: Any) -> None:
    async def handler(turn: Turn[Any]) -> Any:
        return value

    async with bench() as on:
        await on.submit("go")
        await on.run(app_of(handler))
        (record,) = await on.turns()
        assert (record.ending, record.text, record.output) == (Ending.COMPLETED, text, output)
        ended = [e for e in await on.events() if isinstance(e, TurnCompleted)]
        assert [(e.text, e.output) for e in ended] == [(text, output)]
        assert texts(await on.events(), "assistant_message") == ([text] if text else [])
        assert texts(await on.events(), "delta") == ([text] if text else [])
        assert "warning" not in await on.types()


async def test_an_answer_that_was_said_is_not_said_again() -> None:
    async def handler(turn: Turn[Any]) -> str:
        await turn.say("so far")
        await turn.say("the answer", phase="final_answer")
        return "the answer"

    async with bench() as on:
        await on.submit("go")
        await on.run(app_of(handler))
        assert texts(await on.events(), "assistant_message") == ["so far", "the answer"]
        items = [e.item for e in await on.transcript() if isinstance(e.item, AssistantMessage)]
        assert items == [
            AssistantMessage(text="so far", phase="commentary"),
            AssistantMessage(text="the answer"),
        ]
        assert (await on.turns())[0].text == "the answer"


async def test_a_result_that_has_no_json_fails_the_turn() -> None:
    async def handler(turn: Turn[Any]) -> object:
        return object()

    async with bench() as on:
        await on.submit("go")
        await on.run(app_of(handler))
        kind, message = await failure(on)
        assert kind == "handler"
        assert message.startswith("the handler ran and returned a object that JSON cannot hold")


async def test_the_context_of_a_handlers_session_is_compacted_and_rolled_back() -> None:
    seen: list[list[str]] = []

    async def handler(turn: Turn[Any]) -> str:
        seen.append([getattr(item, "text", "") for item in turn.messages])
        await turn.step("one", Works().gives("one"))
        return f"re: {turn.text}"

    async with bench() as on:
        app = app_of(handler, ScriptedModel.by(lambda request: say("a summary")))
        ops: list[str | Op] = ["one", "two", RollbackOp(to="t_2"), CompactOp(), "three"]
        for k, op in enumerate(ops, 1):
            await on.submit(op, f"o{k}")
        await on.run(app)
        endings = [await on.ending(f"o{k}") for k in range(1, 6)]
        assert endings == [Ending.COMPLETED] * 5
        assert seen[1] == ["one", "re: one", "two"]
        assert "re: two" not in seen[2]
        assert seen[2][-1] == "three"

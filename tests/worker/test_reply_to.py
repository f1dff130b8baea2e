"""Where a turn's answer goes: the channels that its messages name, whatever becomes of the turn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from changeover import DeadLettered, Ending, IdReused, Operator
from changeover_shared._checkpoint import Checkpoint, Stats
from changeover_shared._items import MAX_COUNT, UserMessage
from changeover_shared._ops import CompactOp, MessageOp, SetModelOp
from changeover_shared._policies import AnyPolicy, Debounce
from changeover_worker import App, Turn
from changeover_worker._session import signals
from changeover_worker._session.signals import Moment
from changeover_worker._turn.draft import Setup, Taken
from changeover_worker._turn.joining import channels
from changeover_worker._turn.start import start
from changeover_worker.testing import ScriptedModel, call, fail, say
from tests.support.handling import Works, died_in
from tests.support.handling import app_of as handled_by
from tests.support.holding import Bench, bench
from tests.support.recovering import (
    SECOND,
    Blocking,
    app_of,
    die_at,
    die_in_the_tool,
)

GATHERED = Debounce("1h", "2h")


@pytest.fixture(autouse=True)
def _no_listener_stays() -> Iterator[None]:
    yield
    signals.listen(None)


def ok(**agent: Any) -> App:
    return app_of(ScriptedModel.always(say("ok")), **agent)


async def say_to(
    on: Bench, id: str, channel: str | None = None, policy: AnyPolicy = "enqueue", **op: Any
) -> None:
    await on.submit(MessageOp(text=f"text of {id}", reply_to=channel, **op), id, policy=policy)


async def went_to(on: Bench) -> list[tuple[tuple[str, ...], str, tuple[str, ...]]]:
    """Each turn: what it answered, how it ended, and where that goes."""
    return [(one.submission_ids, one.ending.value, one.reply_to) for one in await on.turns()]


def client_of(on: Bench) -> Operator:
    """A client of the session's store."""
    client = Operator("redis://nowhere.invalid", settings=on.settings)
    client._store = on.stores.producer
    return client


def test_each_channel_is_named_once_in_the_order_of_its_first_message() -> None:
    named = [UserMessage(text="t", reply_to=one) for one in ("b", None, "a", "b")]
    assert channels(named) == ("b", "a")
    assert channels(named, before=("c", "a")) == ("c", "a", "b")


async def test_messages_that_share_a_turn_share_where_its_answer_goes() -> None:
    async with bench() as on:
        for id, channel in (("a", "chat"), ("b", None), ("c", "mail"), ("d", "chat")):
            await say_to(on, id, channel, GATHERED)
        await say_to(on, "e")
        await on.pass_quiet()
        await on.run(ok())
        assert await went_to(on) == [
            (("a", "b", "c", "d"), "completed", ("chat", "mail")),
            (("e",), "completed", ()),
        ]


async def test_a_steer_adds_its_channel_behind_those_of_the_turn() -> None:
    async with bench() as on:
        tool = Blocking("slow")
        await say_to(on, "a", "chat")
        run, _ = await on.begin(app_of(ScriptedModel(call("slow"), say("ok")), tool.tool))
        await tool.started.wait()
        await say_to(on, "b", "mail", "steer")
        await say_to(on, "c", "chat", "steer")
        tool.go.set()
        await run
        assert await went_to(on) == [(("a", "b", "c"), "completed", ("chat", "mail"))]


@pytest.mark.parametrize("wish", ["resume", "abort"])
async def test_a_successor_ends_the_turn_where_it_was_to_go(wish: Any) -> None:
    async with bench() as on:
        for id, channel in (("a", "chat"), ("b", "mail")):
            await say_to(on, id, channel, "join")
        await die_at(on, ok(), Moment.STEP_STARTED)
        await say_to(on, "c", "sms", "join")
        await on.run(ok(on_takeover=wish), SECOND)
        ended = "completed" if wish == "resume" else "aborted"
        assert await went_to(on) == [
            (("a", "b"), ended, ("chat", "mail")),
            (("c",), "completed", ("sms",)),
        ]


async def test_what_ends_with_a_turn_that_a_takeover_aborts_adds_its_channel() -> None:
    async with bench() as on:
        tool = Blocking("slow")
        app = app_of(
            ScriptedModel(call("slow")), tool.tool, on_takeover="abort", on_abort_input="fold"
        )
        await say_to(on, "a", "chat")
        run, held = await on.begin(app)
        await tool.started.wait()
        await say_to(on, "b", "mail")
        await on.die(run, held)
        await on.run(app, SECOND)
        assert await went_to(on) == [(("a", "b"), "aborted", ("chat", "mail"))]


@pytest.mark.parametrize("policy", ["interrupt", "rollback"])
async def test_a_turn_that_is_stopped_says_so_where_it_was_to_go(policy: Any) -> None:
    async with bench() as on:
        tool = Blocking("slow")
        await say_to(on, "a", "chat")
        model = ScriptedModel(call("slow"), say("ok"))
        run, held = await on.begin(app_of(model, tool.tool))
        await tool.started.wait()
        await say_to(on, "b", "mail", policy)
        await on.hear(held)
        await run
        assert await went_to(on) == [
            (("a",), "aborted", ("chat",)),
            (("b",), "completed", ("mail",)),
        ]


async def test_a_turn_that_fails_says_so_where_it_was_to_go() -> None:
    """Whether its model fails, or it could not even start."""
    async with bench() as on:
        await say_to(on, "a", "chat")
        await say_to(on, "b", "mail", model="nowhere")
        await on.run(app_of(ScriptedModel(fail("provider_auth", "no"))))
        assert await went_to(on) == [
            (("a",), "failed", ("chat",)),
            (("b",), "failed", ("mail",)),
        ]


async def test_ops_that_answer_nobody_go_nowhere() -> None:
    async with bench() as on:
        await say_to(on, "a", "chat")
        await on.submit(SetModelOp(model="main"), "b")
        await on.submit(CompactOp(), "c")
        await on.run(ok())
        assert [to for *_, to in await went_to(on)] == [("chat",), (), ()]


@pytest.mark.parametrize(
    ("op", "to"), [(MessageOp(text="hi", reply_to="chat"), ("chat",)), (CompactOp(), ())]
)
def test_a_message_that_cannot_be_counted_any_more_is_told_so(op: Any, to: Any) -> None:
    full = Checkpoint(session_id="s", model="main", stats=Stats(turns=MAX_COUNT))
    draft = start(
        full,
        Taken(1, "a", op),
        Setup("bot", "bot", "main", {"main"}),
        turn_id="t_1",
        step_id="s_1",
        first_item=1,
        now_ms=1,
    )
    assert draft.record is not None
    assert (draft.record.ending, draft.record.reply_to) == (Ending.FAILED, to)


async def test_a_handler_sees_where_its_answer_goes_in_each_of_its_runs() -> None:
    """What steers it adds to the outcome, and stands at its own message: a handler that asks
    where it answers to does the same when it is run again."""
    async with bench() as on:
        works, seen = Works(), []

        async def report(turn: Turn[None]) -> str:
            steers = await turn.steering()
            seen.append((turn.reply_to, [one.reply_to for one in steers]))
            await turn.step("slow", works.hangs("slow") if len(seen) == 1 else works.gives("slow"),
                            effect="idempotent")  # fmt: skip
            return "ok"

        for id, channel in (("a", "chat"), ("b", None), ("c", "sms")):
            await say_to(on, id, channel, "join")
        await say_to(on, "d", "mail", "steer")
        await died_in(on, handled_by(report), works, "slow")
        await on.run(handled_by(report), SECOND)
        assert seen == [(("chat", "sms"), ["mail"])] * 2
        assert await went_to(on) == [
            (("a", "b", "c", "d"), "completed", ("chat", "sms", "mail")),
        ]


async def test_the_outcome_says_where_it_goes_and_another_channel_is_another_message() -> None:
    async with bench() as on:
        client = client_of(on)
        common: dict[str, Any] = {"agent": "bot", "policy": "join"}
        for id, channel in (("a", "chat"), ("b", "mail")):
            await client.submit("s", id, id=id, reply_to=channel, **common)
        with pytest.raises(IdReused):
            await client.submit("s", "a", id="a", reply_to="mail", **common)
        with pytest.raises(IdReused):
            await client.submit("s", "a", id="a", **common)
        again = await client.submit("s", "a", id="a", reply_to="chat", **common)
        assert again.answer == "duplicate"
        await client.submit("s", "c", id="c", reply_to="chat", agent="bot")
        assert (await client.cancel("s", "c")).answer == "cancelled"
        await on.run(ok())
        outcomes = [await client.wait("s", id) for id in ("a", "b", "c")]
        assert [one.reply_to for one in outcomes] == [("chat", "mail"), ("chat", "mail"), ()]


async def test_a_turn_that_is_given_up_says_so_where_it_was_to_go() -> None:
    async with bench() as on:
        client = client_of(on)
        tool = Blocking("slow")
        await say_to(on, "a", "chat")
        await die_in_the_tool(on, app_of(ScriptedModel(call("slow")), tool.tool), tool)
        assert await client.quarantine("s", reason="poison")
        (one,) = [one async for one in client.redrive(["s"], drop_input=True)]
        assert one.dropped == ("a",)
        with pytest.raises(DeadLettered) as ended:
            await client.run("s", "text of a", id="a", agent="bot", reply_to="chat")
        assert ended.value.outcome.reply_to == ("chat",)

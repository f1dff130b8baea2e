"""Rollbacks: by op and by a message's policy. The transcript stays, the context does not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from changeover_shared._events import ContextRolledBack, Message, TurnFailed
from changeover_shared._items import AssistantMessage, ToolResult, UserMessage
from changeover_shared._ops import CompactOp, MessageOp, RollbackOp, SetModelOp, digest, encode_op
from changeover_shared._store.records import Create, Submit
from changeover_shared._words import Ending
from changeover_worker import Agent, App, Compaction, tool
from changeover_worker._models.model import Emit, ModelRequest, ModelResponse
from changeover_worker._session import signals
from changeover_worker._session.signals import Moment
from changeover_worker._turn.context import flaw
from changeover_worker.testing import ScriptedModel, call, fail, say
from tests.support.holding import ROUTE, Bench, bench, until


@pytest.fixture(autouse=True)
def _no_listener_stays() -> Iterator[None]:
    yield
    signals.listen(None)


@tool
async def pay(order: str) -> str:
    """Pay an order."""
    return f"paid {order}"


def app_of(model: Any, **agent: Any) -> App:
    settings: dict[str, Any] = {"compaction": None, **agent}
    bot = Agent("bot", model="main", tools=[pay], **settings)
    return App(agents=[bot], models={"main": model, "other": model})


async def roll_back(b: Bench, app: App, to: str, id: str = "r1") -> Ending | None:
    await b.submit(RollbackOp(to=to), id)
    await b.run(app)
    return await b.ending(id)


async def talk(b: Bench, app: App, *ids: str) -> None:
    for id in ids:
        await b.submit(f"message {id}", id)
        await b.run(app)


async def submit_with_policy(b: Bench, text: str, id: str, policy: str) -> None:
    op = MessageOp(text=text)
    await b.stores.producer.submit(
        Submit(
            session_id=b.session,
            submission_id=id,
            digest=digest(op),
            cls="turn",
            body=encode_op(op),
            create=Create(route=ROUTE, agent="bot"),
            policy=policy,
            event=Message(text=text),
        )
    )


def shown(request: ModelRequest) -> list[str]:
    return [
        item.text if isinstance(item, UserMessage | AssistantMessage) else f"-> {item.output}"
        for item in request.items
    ]


async def test_a_turn_and_all_later_ones_leave_the_context_and_stay_in_the_transcript() -> None:
    model = ScriptedModel(say("1"), say("2"), say("3"), say("4"))
    app = app_of(model)
    async with bench() as b:
        await talk(b, app, "m1", "m2", "m3")
        before = await b.transcript()
        assert await roll_back(b, app, "t_2") is Ending.COMPLETED
        assert await b.transcript() == before
        event = (await b.events())[-1]
        assert isinstance(event, ContextRolledBack)
        assert (event.to, event.tools, event.submission_id) == ("t_2", (), "r1")
        await talk(b, app, "m4")
        assert shown(model.requests[-1]) == ["message m1", "1", "message m4"]
        assert len(await b.transcript()) == 8


async def test_the_model_is_told_which_calls_had_run() -> None:
    """Hole 53."""
    model = ScriptedModel(say("1"), call("pay", order="7"), say("Paid."), say("Hello."))
    app = app_of(model)
    async with bench() as b:
        await talk(b, app, "m1", "m2")
        await roll_back(b, app, "t_2")
        (event,) = [e for e in await b.events() if isinstance(e, ContextRolledBack)]
        assert event.tools == ('pay({"order": "7"})',)
        await b.submit("message m3", "m3")
        await b.run(app, "w2:00000002")
        first, answer, note, last = model.requests[-1].items
        assert [getattr(i, "text", "") for i in (first, answer, last)] == [
            "message m1",
            "1",
            "message m3",
        ]
        assert isinstance(note, UserMessage)
        assert note.author == "changeover"
        assert note.text == (
            "[A part of the conversation was taken back here. These calls had run in it; what they "
            "did is not undone, so do not make them again unless asked to:\n"
            '- pay({"order": "7"})]'
        )


async def test_the_whole_conversation_may_be_rolled_back_and_rolled_back_again() -> None:
    model = ScriptedModel(say("1"), say("2"), say("3"), say("4"))
    app = app_of(model)
    async with bench() as b:
        await talk(b, app, "m1", "m2")
        assert await roll_back(b, app, "t_2", "r1") is Ending.COMPLETED
        await talk(b, app, "m3")
        assert await roll_back(b, app, "t_1", "r2") is Ending.COMPLETED
        await talk(b, app, "m4")
        assert shown(model.requests[-1]) == ["message m4"]


async def test_what_was_not_carried_out_in_a_turn_without_items_can_be_rolled_back() -> None:
    model = ScriptedModel(say("1"), say("2"))
    app = app_of(model)
    async with bench() as b:
        await talk(b, app, "m1")
        await b.submit(SetModelOp(model="other"), "s1")
        await b.run(app)
        assert await roll_back(b, app, "t_2") is Ending.COMPLETED
        await talk(b, app, "m2")
        assert shown(model.requests[-1]) == ["message m1", "1", "message m2"]


@pytest.mark.parametrize("to", ["t_9", "t_3", "t_0", "t_01", "nonsense", "t_99999999999999999999"])
async def test_a_turn_that_is_not_there_fails_the_rollback_and_changes_nothing(to: str) -> None:
    model = ScriptedModel(say("1"), say("2"), say("3"))
    app = app_of(model)
    async with bench() as b:
        await talk(b, app, "m1", "m2")
        assert await roll_back(b, app, to) is Ending.FAILED
        (failed,) = [e for e in await b.events() if isinstance(e, TurnFailed)]
        assert failed.error.kind == "unknown_turn"
        await talk(b, app, "m3")
        assert len(model.requests[-1].items) == 5


async def test_a_turn_is_rolled_back_once() -> None:
    model = ScriptedModel(say("1"), say("2"), say("3"))
    app = app_of(model)
    async with bench() as b:
        await talk(b, app, "m1", "m2")
        await roll_back(b, app, "t_1", "r1")
        assert await roll_back(b, app, "t_2", "r2") is Ending.FAILED
        (failed,) = [e for e in await b.events() if isinstance(e, TurnFailed)]
        assert failed.error.kind == "rolled_back"


async def test_a_turn_that_is_part_of_a_summary_is_not_rolled_back_and_a_later_one_is() -> None:
    model = ScriptedModel(say("1" * 999), say("2"), say("summary"), say("3"), say("4"))
    app = app_of(model, compaction=Compaction(keep_tokens=20))
    async with bench() as b:
        await talk(b, app, "m1", "m2")
        await b.submit(CompactOp(), "c1")
        await b.run(app)
        assert await roll_back(b, app, "t_1", "r1") is Ending.FAILED
        (failed,) = [e for e in await b.events() if isinstance(e, TurnFailed)]
        assert failed.error.kind == "compacted"
        await talk(b, app, "m3")
        assert await roll_back(b, app, "t_2", "r2") is Ending.COMPLETED
        await talk(b, app, "m4")
        told = shown(model.requests[-1])
        assert (len(told), told[-1]) == (2, "message m4")
        assert told[0].endswith("\n\nsummary")


async def test_what_was_rolled_back_is_in_no_summary() -> None:
    model = ScriptedModel(say("1" * 999), say("2 secret"), say("3"), say("summary"), say("4"))
    app = app_of(model, compaction=Compaction(keep_tokens=1))
    async with bench() as b:
        await talk(b, app, "m1", "m2")
        await roll_back(b, app, "t_2", "r1")
        await talk(b, app, "m3")
        await b.submit(CompactOp(), "c1")
        await b.run(app)
        assert await b.ending("c1") is Ending.COMPLETED
        (asked,) = shown(model.requests[-1])
        assert "secret" not in asked
        assert "message m3" in asked
        await talk(b, app, "m4")
        assert len(shown(model.requests[-1])) == 2
        body = await b.stores.worker.read_checkpoint(b.session)
        assert body is not None
        assert b"left_out" not in body


async def test_a_failed_turn_can_be_rolled_back() -> None:
    model = ScriptedModel(say("1"), fail("provider_auth"), say("3"))
    app = app_of(model)
    async with bench() as b:
        await talk(b, app, "m1", "m2")
        assert await roll_back(b, app, "t_2") is Ending.COMPLETED
        await talk(b, app, "m3")
        assert shown(model.requests[-1]) == ["message m1", "1", "message m3"]


class Waits:
    """Calls a tool, then waits in its second answer; later it answers at once."""

    name = "waits"

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []
        self.waiting = asyncio.Event()
        self.script = ScriptedModel(call("pay", order="7"), name="script")

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        self.requests.append(request)
        if len(self.requests) == 1:
            return await self.script.respond(request, emit)
        if len(self.requests) == 2:
            self.waiting.set()
            await asyncio.Event().wait()
        return ModelResponse(AssistantMessage(text="Hello."))


@pytest.mark.parametrize("policy", ["interrupt", "rollback"])
async def test_a_message_that_rolls_back_takes_the_turn_that_it_stops_out(policy: str) -> None:
    model = Waits()
    app = app_of(model)
    async with bench() as b:
        await b.submit("pay 7", "m1")
        run, lease = await b.begin(app)
        await until(model.waiting.is_set, "the second step")
        await submit_with_policy(b, "no, wait", "m2", policy)
        lease.alert(1)
        await run
        assert await b.ending("m1") is Ending.ABORTED
        assert await b.ending("m2") is Ending.COMPLETED
        items = model.requests[-1].items
        assert flaw(items) == ""
        types = await b.types()
        if policy == "interrupt":
            assert [item.type for item in items] == ["user", "assistant", "tool_result", "user"]
            assert "context_rolled_back" not in types
        else:
            note, last = shown(model.requests[-1])
            assert 'pay({"order": "7"})' in note
            assert last == "no, wait"
            assert types.index("context_rolled_back") + 1 == types.index("turn_aborted")
        assert [e.item.type for e in await b.transcript()] == [
            *["user", "assistant", "tool_result"],
            *["user", "assistant"],
        ]


async def test_a_call_that_was_cut_off_by_a_rollback_is_told_as_one_that_may_have_run() -> None:
    started = asyncio.Event()

    @tool
    async def wire_money(to: str) -> str:
        """Send money."""
        started.set()
        await asyncio.Event().wait()
        return "sent"

    model = ScriptedModel(call("wire_money", to="b"), say("Fine."))
    bot = Agent("bot", model="main", tools=[wire_money])
    app = App(agents=[bot], models={"main": model})
    async with bench() as b:
        await b.submit("send it", "m1")
        run, lease = await b.begin(app)
        await until(started.is_set, "the tool runs")
        await submit_with_policy(b, "stop", "m2", "rollback")
        lease.alert(1)
        await run
        note = shown(model.requests[-1])[0]
        assert 'wire_money({"to": "b"}): may have run' in note
        result = (await b.transcript())[2].item
        assert isinstance(result, ToolResult)
        assert result.unknown


async def test_a_rollback_that_a_dead_worker_had_not_seen_is_settled_by_its_successor() -> None:
    model = Waits()
    app = app_of(model)
    async with bench() as b:
        await b.submit("pay 7", "m1")
        run, lease = await b.begin(app)
        await until(model.waiting.is_set, "the second step")
        await submit_with_policy(b, "no, wait", "m2", "rollback")
        await b.die(run, lease)
        await b.run(app, "w2:00000002")
        assert await b.ending("m1") is Ending.ABORTED
        note, last = shown(model.requests[-1])
        assert "pay" in note
        assert last == "no, wait"


@pytest.mark.parametrize("forgotten", [False, True])
async def test_a_session_that_begins_behind_older_numbers_is_rolled_back_by_them(
    forgotten: bool,
) -> None:
    model = ScriptedModel(say("1"), say("2"), say("3"), say("4"), say("5"))
    app = app_of(model)
    async with bench() as b:
        await talk(b, app, "m1", "m2")
        upkeep = b.stores.producer.upkeep
        assert await upkeep.delete(b.session)
        if forgotten:
            partition = b.stores.producer.keys.of(b.session)
            head = partition.session(b.session, "head")
            await b.stores.executor.command("HSET", head, "deleted_ms", 1)
            assert await upkeep.purge(partition.partition, [b.session]) == (1, 0)
        await talk(b, app, "m3", "m4")
        assert await roll_back(b, app, "t_4") is Ending.COMPLETED
        await talk(b, app, "m5")
        assert shown(model.requests[-1]) == ["message m3", "3", "message m5"]


async def test_a_rollback_that_comes_right_before_the_abort_of_an_earlier_interrupt_counts() -> (
    None
):
    """The abort has been made up already; what it would leave in the context is left out."""
    model = Waits()
    app = app_of(model)
    async with bench() as b:
        await b.submit("pay 7", "m1")
        run, lease = await b.begin(app)
        await until(model.waiting.is_set, "the second step")
        sent: list[str] = []

        async def listener(moment: Moment, session_id: str, detail: str) -> None:
            if moment is Moment.BEFORE_COMMIT and detail == "end" and not sent:
                sent.append("m2")
                await submit_with_policy(b, "forget that", "m2", "rollback")

        signals.listen(listener)
        await b.interrupt()
        await b.hear(lease)
        await run
        assert (await b.ending("m1"), await b.ending("i1")) == (Ending.ABORTED, Ending.COMPLETED)
        assert await b.ending("m2") is Ending.COMPLETED
        note, last = shown(model.requests[-1])
        assert 'pay({"order": "7"})' in note
        assert last == "forget that"

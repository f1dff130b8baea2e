"""Which inputs make one turn, and that they stay one whatever becomes of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from changeover_shared._errors import IdReused
from changeover_shared._events import ModelChanged, SubmissionMerged, TurnStarted
from changeover_shared._ops import MessageOp, SetModelOp
from changeover_shared._policies import AnyPolicy, Debounce
from changeover_shared._store.records import Commit
from changeover_shared._words import CommitKind, Ending, Next
from changeover_worker import Agent, App
from changeover_worker._session import signals
from changeover_worker._session.signals import Moment
from changeover_worker.testing import ScriptedModel, fail, say
from tests.support.holding import Bench, bench
from tests.support.recovering import SECOND, app_of, checkpoint_of, die_at


@pytest.fixture(autouse=True)
def _no_listener_stays() -> Iterator[None]:
    yield
    signals.listen(None)


def ok(model: Any = None) -> App:
    return app_of(model or ScriptedModel.always(say("ok")))


async def turns_of(on: Bench) -> list[tuple[str, ...]]:
    return [record.submission_ids for record in await on.turns()]


MANY: list[tuple[str, list[tuple[str, AnyPolicy]], list[tuple[str, ...]]]] = [
    (
        "neighbours of one policy",
        [("a", "join"), ("b", "join"), ("c", "join")],
        [("a", "b", "c")],
    ),
    (
        "not over one that wants its own turn",
        [("a", "join"), ("b", "enqueue"), ("c", "join"), ("d", "join")],
        [("a",), ("b",), ("c", "d")],
    ),
    (
        "one that wants its own turn joins nobody",
        [("a", "enqueue"), ("b", "join")],
        [("a",), ("b",)],
    ),
    (
        "steers go into the turn before them, whatever is between",
        [("a", "enqueue"), ("b", "enqueue"), ("c", "steer")],
        [("a", "c"), ("b",)],
    ),
    (
        "joined and steered, in the order in which they came",
        [("a", "join"), ("b", "steer"), ("c", "join"), ("d", "enqueue")],
        [("a", "b", "c"), ("d",)],
    ),
    (
        "steers that missed their turn are one",
        [("a", "steer"), ("b", "steer"), ("c", "enqueue")],
        [("a", "b"), ("c",)],
    ),
]


@pytest.mark.parametrize(("sent", "turns"), [case[1:] for case in MANY], ids=[c[0] for c in MANY])
async def test_what_waits_is_composed_into_turns(
    sent: list[tuple[str, AnyPolicy]], turns: list[tuple[str, ...]]
) -> None:
    async with bench() as on:
        for id, policy in sent:
            await on.submit(f"text of {id}", id, policy=policy)
        await on.run(ok())
        assert await turns_of(on) == turns
        starts = [event for event in await on.events() if isinstance(event, TurnStarted)]
        assert [start.submission_ids for start in starts] == turns
        merged = [event for event in await on.events() if isinstance(event, SubmissionMerged)]
        assert [(one.submission_id, one.by) for one in merged] == [
            (id, first) for first, *more in turns for id in more
        ]


async def test_a_turn_joins_more_than_a_claim_brings_along() -> None:
    """A claim brings 16 bodies; the others are read."""
    async with bench() as on:
        ids = tuple(f"m{n}" for n in range(1, 31))
        for id in ids:
            await on.submit(f"text of {id}", id, policy="join")
        model = ScriptedModel(say("ok"))
        await on.run(ok(model))
        assert await turns_of(on) == [ids]
        texts = [item.text for item in model.requests[0].items]  # type: ignore[union-attr]
        assert texts == [f"text of {id}" for id in ids]


async def test_what_is_gathered_joins_nothing_of_another_policy() -> None:
    async with bench() as on:
        await on.submit("a", "a", policy="join")
        for id in ("b", "c"):
            await on.submit(id, id, policy=Debounce("1h", "2h"))
        await on.pass_quiet()
        await on.run(ok())
        assert await turns_of(on) == [("a",), ("b", "c")]


async def test_what_gathers_is_passed_by_what_may_run_at_once() -> None:
    """Also by an operation, which then no longer stands between two that gather."""
    async with bench() as on:
        for id in ("a", "c"):
            await on.submit(id, id, policy=Debounce("1h", "2h"))
            await on.submit(SetModelOp(model="main"), f"{id}, behind")
        await on.submit("e", "e", policy="interrupt")
        await on.run(ok())
        assert await turns_of(on) == [("a, behind",), ("c, behind",), ("e",)]
        await on.pass_quiet()
        await on.run(ok())
        assert (await turns_of(on))[3:] == [("a", "c")]


async def test_an_operation_between_two_messages_keeps_its_place() -> None:
    async with bench() as on:
        await on.submit("a", "a", policy="join")
        await on.submit(SetModelOp(model="other"), "b")
        await on.submit("c", "c", policy="join")
        two = ScriptedModel.always(say("ok"))
        app = App(agents=[Agent("bot", model="main")], models={"main": two, "other": two})
        await on.run(app)
        assert await turns_of(on) == [("a",), ("b",), ("c",)]


async def test_a_message_that_fails_by_itself_fails_alone() -> None:
    """Its neighbours are answered, and none overtakes it."""
    async with bench() as on:
        await on.submit("a", "a", policy="join")
        await on.submit(MessageOp(text="b", model="nowhere"), "b", policy="join")
        await on.submit("c", "c", policy="join")
        await on.run(ok())
        assert [(r.submission_ids, r.ending) for r in await on.turns()] == [
            (("a",), "completed"),
            (("b",), "failed"),
            (("c",), "completed"),
        ]


async def test_each_of_a_joined_turn_says_what_it_says_of_its_session() -> None:
    """In order: the last word on the model and on the metadata counts."""
    async with bench() as on:
        first = ScriptedModel()
        last = ScriptedModel(say("ok"))
        app = App(agents=[Agent("bot", model="main")], models={"main": first, "last": last})
        await on.submit(MessageOp(text="a", model="last", metadata={"n": 1}), "a", policy="join")
        await on.submit(MessageOp(text="b", metadata={"n": 2}), "b", policy="join")
        await on.run(app)
        assert len(last.requests) == 1
        changes = [event for event in await on.events() if isinstance(event, ModelChanged)]
        assert [(one.previous, one.model) for one in changes] == [("main", "last")]
        checkpoint = await checkpoint_of(on)
        assert (checkpoint.model, checkpoint.metadata) == ("last", {"n": 2})


@pytest.mark.parametrize("wish", ["resume", "abort"])
async def test_a_successor_has_the_same_composition_and_settles_all_of_it(wish: Any) -> None:
    """What came while its worker died is a turn of its own."""
    async with bench() as on:
        for id in ("a", "b"):
            await on.submit(id, id, policy="join")
        await die_at(on, ok(), Moment.STEP_STARTED)
        await on.submit("c", "c", policy="join")
        await on.run(app_of(ScriptedModel.always(say("ok")), on_takeover=wish), SECOND)
        ended = "completed" if wish == "resume" else "aborted"
        assert [await on.ending(id) for id in ("a", "b", "c")] == [ended, ended, "completed"]
        assert await turns_of(on) == [("a", "b"), ("c",)]


async def test_a_joined_turn_that_fails_fails_for_all() -> None:
    async with bench() as on:
        for id in ("a", "b"):
            await on.submit(id, id, policy="join")
        await on.run(ok(ScriptedModel(fail("provider_auth", "no"))))
        assert [await on.ending(id) for id in ("a", "b")] == ["failed", "failed"]


async def test_what_a_turn_gave_back_together_is_taken_together() -> None:
    """Hole 57: with nothing that came behind it, whatever that wants."""
    async with bench() as on:
        for id in ("a", "b"):
            await on.submit(id, id)
        grant = await on.claim()
        store = on.stores.worker
        opened = Commit("k1", 0, "t_1", CommitKind.START, "{}", take=(1, 2))
        await store.commit(grant.lease, opened)
        back = Commit("k2", 1, "t_1", CommitKind.END, '{"version":1,"session_id":"s"}',
                      end="requeue", next=Next.RELEASE)  # fmt: skip
        await store.commit(grant.lease, back)
        await on.submit("c", "c", policy="join")
        await on.submit("d", "d", policy="steer")
        await on.run(ok(), SECOND)
        assert await turns_of(on) == [("a", "b"), ("c", "d")]


async def test_an_edit_is_a_cancel_and_a_new_id() -> None:
    """Of a message that waits to be joined with others; of one that runs it is refused."""
    async with bench() as on:
        await on.submit("a", "a", policy="join")
        await on.submit("tpyo", "b", policy="join")
        producer = on.stores.producer
        assert (await producer.cancel("s", "b")).word == "CANCELLED"
        await on.submit("typo", "b2", policy="join")
        model = ScriptedModel.always(say("ok"))
        async with at_the_first_step(on, ok(model)) as finish:
            assert (await producer.cancel("s", "a")).word == "RUNNING"
            assert (await producer.cancel("s", "b")).word == "ENDED"
            await finish()
        assert await turns_of(on) == [("a", "b2")]
        assert await on.ending("b") == Ending.CANCELLED
        assert [item.text for item in model.requests[0].items] == ["a", "typo"]  # type: ignore[union-attr]


@asynccontextmanager
async def at_the_first_step(on: Bench, app: App) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """The session held while its model is about to be asked; it goes on with what is yielded."""
    there, go = asyncio.Event(), asyncio.Event()

    async def listener(moment: Moment, session_id: str, detail: str) -> None:
        if moment is Moment.STEP_STARTED:
            there.set()
            await go.wait()

    signals.listen(listener)
    run, _ = await on.begin(app)
    await there.wait()

    async def finish() -> None:
        go.set()
        await run

    yield finish


@pytest.mark.parametrize("policy", ["join", "steer", "latest", "interrupt"])
async def test_an_id_names_one_message_for_ever(policy: AnyPolicy) -> None:
    """While it waits, while it runs and when it has ended; also with another policy."""
    async with bench() as on:
        for _ in range(2):
            first = await on.submit("a", "a", policy=policy)
        assert first.word == "DUPLICATE"
        async with at_the_first_step(on, ok()) as finish:
            assert (await on.submit("a", "a", policy="enqueue")).word == "DUPLICATE"
            with pytest.raises(IdReused):
                await on.submit("other", "a", policy=policy)
            await finish()
        before = await on.stores.dump()
        again = await on.submit("a", "a", policy=policy)
        assert (again.word, again.ending) == ("DUPLICATE", Ending.COMPLETED)
        with pytest.raises(IdReused):
            await on.submit("other", "a", policy=policy)
        assert await on.stores.dump() == before
        assert await turns_of(on) == [("a",)]


async def test_a_joined_turn_that_cannot_be_written_fails_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And is not tried for ever."""
    async with bench() as on:
        for id in ("a", "b"):
            await on.submit(MessageOp(text=id, reply_to=f"to_{id}"), id, policy="join")
        commit = on.stores.worker.commit

        async def unwritable(lease: Any, asked: Commit) -> Any:
            if asked.kind is CommitKind.START and not asked.end:
                raise ValueError("no form")
            return await commit(lease, asked)

        monkeypatch.setattr(on.stores.worker, "commit", unwritable)
        await on.run(ok())
        assert [await on.ending(id) for id in ("a", "b")] == ["failed", "failed"]
        assert await turns_of(on) == [("a", "b")]
        assert [one.reply_to for one in await on.turns()] == [("to_a", "to_b")]


async def test_until_a_start_is_committed_it_has_taken_nothing() -> None:
    """A start that its worker did not live to write is composed anew."""
    async with bench() as on:
        for id in ("a", "b"):
            await on.submit(id, id, policy="join")
        await die_at(on, ok(), Moment.BEFORE_COMMIT, "start")
        await on.submit("c", "c", policy="join")
        await on.run(ok(), SECOND)
        assert await turns_of(on) == [("a", "b", "c")]

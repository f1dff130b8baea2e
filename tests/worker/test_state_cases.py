"""What a session keeps from one worker to the next, case by case: history, lease, metadata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import fakeredis
import pytest

from changeover_shared._checkpoint import Checkpoint, Stats
from changeover_shared._events import SessionQuarantined
from changeover_shared._items import MAX_COUNT, Json, Usage
from changeover_shared._ops import MessageOp
from changeover_shared._words import CommitKind, Ending, GiveUp, Next, Status
from changeover_worker._agent import Agent
from changeover_worker._app import App
from changeover_worker._session import signals
from changeover_worker._session.held import Drain
from changeover_worker._session.loaded import Loaded
from changeover_worker._session.signals import Moment
from changeover_worker._turn.draft import Draft
from changeover_worker.testing import ScriptedModel, say
from tests.support.fleet import fake_executor, small_settings, stores_on
from tests.support.holding import Bench, bench, until
from tests.support.recovering import (
    SECOND,
    app_of,
    checkpoint_of,
    die_at,
    no_model,
)


@pytest.fixture(autouse=True)
def _no_listener_stays() -> Iterator[None]:
    yield
    signals.listen(None)


async def test_a_fresh_worker_rebuilds_a_finished_session_from_the_store_alone() -> None:
    """Case M3: its history and its last answer are there without a model call, and the next
    message is asked with all of it."""
    server = fakeredis.FakeServer()
    settings = small_settings()
    async with stores_on(fake_executor(server), settings) as first:
        on = Bench(first, settings)
        await on.submit("hello")
        await on.run(app_of(ScriptedModel(say("done"))))
    async with stores_on(fake_executor(server), settings) as second:
        on = Bench(second, settings)
        ((_, session),) = await second.producer.catalogue(before=None, limit=10)
        assert session == on.session
        loaded = Loaded(second.worker, on.session)
        await loaded.read_again()
        assert [getattr(i, "text", "") for i in loaded.items] == ["hello", "done"]
        model = ScriptedModel(say("and again"))
        await on.submit("more", "m2")
        await on.run(app_of(model), SECOND)
        (request,) = model.requests
        assert [getattr(i, "text", "") for i in request.items] == ["hello", "done", "more"]


async def test_state_and_counts_survive_a_reload_and_add_up() -> None:
    """Case S4: metadata, model and what was counted are there for a worker that has seen nothing
    of it. Difference: tokens are kept with each turn's record, not in a ledger by source and
    model."""
    server = fakeredis.FakeServer()
    settings = small_settings()
    used = (Usage(input_tokens=11, output_tokens=4), Usage(input_tokens=30, reasoning_tokens=2))
    before: Checkpoint | None = None
    for number, usage in enumerate(used, start=1):
        async with stores_on(fake_executor(server), settings) as stores:
            on = Bench(stores, settings)
            if before is not None:
                assert await checkpoint_of(on) == before
            op = MessageOp(text="hello", metadata={"seen": number})
            await on.submit(op, f"m{number}")
            await on.run(app_of(ScriptedModel(say("done", usage=usage))))
            before = await checkpoint_of(on)
            assert (before.metadata, before.stats.model_calls) == ({"seen": number}, number)
            records = await on.turns()
    assert tuple(record.usage for record in records) == used
    assert sum((record.usage for record in records), Usage()).total_tokens == 45


@pytest.mark.parametrize("how", ["finished", "drained"])
async def test_a_worker_that_stops_in_good_order_leaves_no_lease(how: str) -> None:
    """Case M6: the next grant is immediate, its fence is one higher, and a late or a second
    release changes nothing."""
    async with bench() as on:
        await on.submit("hello")
        app = app_of(ScriptedModel.always(say("done")))
        if how == "finished":
            grant = await on.claim()
            await on.runner(app).run(grant, on.hold(grant))
            await on.submit("more", "m2")
        else:
            grant = await on.claim()
            held = on.hold(grant)
            held.drain()
            await until(lambda: held.drain_level is Drain.AT_BOUNDARY, "the drain was heard")
            await on.runner(app).run(grant, held)
        again = await on.claim(SECOND)
        assert (grant.lease.fence, again.lease.fence) == (1, 2)
        assert again.head.raw.get("lapsed_why", "") == ("" if how == "finished" else "handed_off")
        before = await on.stores.dump()
        for _ in range(2):
            await on.stores.worker.give_up(grant.lease, GiveUp.RELEASE)
        assert await on.stores.dump() == before
        await on.runner(app).run(again, on.hold(again))
        if how == "finished":
            assert await on.ending("m2") is Ending.COMPLETED
        assert await on.ending() is Ending.COMPLETED


async def test_a_grant_that_changes_nothing_writes_no_checkpoint() -> None:
    """Cases 000-1, 000-6: an attachment that changes nothing leaves checkpoint, transcript and
    inbox as they are."""
    async with bench() as on:
        await on.submit("hello")
        app = app_of(ScriptedModel(say("done")))
        await on.run(app)
        await on.submit("taken back", "m2")
        grant = await on.claim(SECOND)
        assert (await on.stores.producer.cancel(on.session, "m2")).word == "CANCELLED"
        keys = on.stores.worker.keys.of(on.session)
        names = ("checkpoint", "transcript", "turns", "inbox")
        before = {n: (await on.stores.dump()).get(keys.session(on.session, n)) for n in names}
        end = await on.runner(app).run(grant, on.hold(grant))
        assert (end.how, end.turns) == ("released", 0)
        after = {n: (await on.stores.dump()).get(keys.session(on.session, n)) for n in names}
        assert after == before


async def test_the_first_thing_that_a_worker_writes_says_how_the_session_is_configured() -> None:
    """Case 000-4: and it is the agent's model, not one that lies elsewhere in the store."""
    async with bench() as on:
        on.session = "fresh"
        for key in ("agent", "model_route", "agent:model_route", "fresh:model"):
            await on.stores.executor.command("SET", key, "other")
        app = App(
            agents=[Agent("bot", model="default")],
            models={"default": ScriptedModel(say("hi")), "other": no_model()},
        )
        await on.submit("hello")
        await on.run(app)
        message, configured, *_ = await on.events()
        assert (message.type, message.fence) == ("message", 0)
        assert configured.type == "session_configured"
        assert getattr(configured, "model", None) == "default"
        assert (await checkpoint_of(on)).model == "default"


def metadata_app(seen: list[Mapping[str, Json]]) -> App:
    def instruct(turn: Any) -> str:
        seen.append(turn.metadata)
        return "x"

    return App(
        agents=[Agent("bot", model="main", instructions=instruct)],
        models={"main": ScriptedModel.always(say("ok"))},
    )


async def test_metadata_that_is_absent_keeps_and_metadata_that_is_given_replaces() -> None:
    """Case 000-7: absent, given and empty are three things, on whichever worker."""
    chat: dict[str, Json] = {"gateway.chat": {"workspace": "/srv/project"}}
    other: dict[str, Json] = {"gateway.chat": {"workspace": "/srv/other"}}
    async with bench() as on:
        seen: list[Mapping[str, Json]] = []
        for k, given in enumerate((chat, None, other, None, {}), 1):
            await on.submit(MessageOp(text="x", metadata=given), f"m{k}")
            await on.run(metadata_app(seen), f"w:0000000{k}")
            assert (await checkpoint_of(on)).metadata == seen[-1]
        assert seen == [chat, chat, other, other, {}]


async def test_a_metadata_that_a_dead_worker_took_is_there_for_its_successor() -> None:
    """Case 000-7: it is stored with the commit that takes the message."""
    async with bench() as on:
        chat: dict[str, Json] = {"gateway.chat": {"workspace": "/srv/project"}}
        seen: list[Mapping[str, Json]] = []
        await on.submit(MessageOp(text="x", metadata=chat))
        await die_at(on, metadata_app(seen), Moment.STEP_STARTED)
        await on.run(metadata_app(seen), SECOND)
        assert seen == [chat]


# Counts


async def test_a_turn_whose_end_cannot_be_counted_stays_open_in_a_quarantined_session() -> None:
    """Case 001-23: at run time the session is quarantined at once, with the reason in its journal
    and in the log; nothing is counted, its turn stays open, and no model is asked again."""
    async with bench() as on:
        spent = Usage(input_tokens=MAX_COUNT - 5)
        await on.submit("hello")
        grant = await on.claim()
        full = Checkpoint(session_id=on.session, model="main", stats=Stats(usage=spent))
        draft = Draft(CommitKind.RECOVER, "", full)
        commit = draft.to_commit(rev=0, max_step_ms=60_000, next=Next.HOLD, quantum_left=True)
        await on.stores.worker.commit(grant.lease, commit)
        await on.stores.worker.give_up(grant.lease, GiveUp.HAND_OFF)
        end = await on.run(app_of(ScriptedModel.always(say("x", usage=Usage(input_tokens=6)))))
        assert (end.how, end.turns) == ("released", 0)
        stopped = (await on.events())[-1]
        assert isinstance(stopped, SessionQuarantined)
        assert "input_tokens would pass" in stopped.error
        assert any("input_tokens would pass" in str(entry) for entry in on.log.calls)
        after = await checkpoint_of(on)
        assert after.execution is not None and after.stats == full.stats
        assert await on.ending() is None
        head = await on.stores.worker.read_head(on.session)
        assert head is not None and head.status is Status.QUARANTINED

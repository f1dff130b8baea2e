"""Models, contexts and other sessions: what a session is configured with, case by case."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from changeover_shared._events import (
    ModelChanged,
    SessionConfigured,
    SessionResumeRequested,
    TurnFailed,
    Warned,
)
from changeover_shared._ops import MessageOp, ResumeSessionOp, SetModelOp, digest, encode_op
from changeover_shared._store.records import Create, Submit
from changeover_shared._words import Ending
from changeover_worker._agent import Agent, TurnContext
from changeover_worker._app import App
from changeover_worker._session.signals import Moment
from changeover_worker.testing import ScriptedModel, say
from tests.support.holding import ROUTE, Bench, bench
from tests.support.recovering import SECOND, checkpoint_of, die_at, own_keys, revision_of

PROJECT = {"workspace_label": "Project One", "origin_label": "cron"}


def app_with(default: str, *others: str, **agent: Any) -> App:
    """An app whose models answer with their own names."""
    models = {name: ScriptedModel.always(say(name)) for name in (default, *others)}
    return App(agents=[Agent("bot", model=default, **agent)], models=models)


async def send(
    on: Bench,
    session: str,
    id: str,
    op: MessageOp | ResumeSessionOp,
    *,
    context: str = "{}",
    tenant: str = "",
) -> None:
    """Submit an op to any session."""
    create = Create(route=ROUTE, agent="bot", tenant=tenant, context=context)
    await on.stores.producer.submit(Submit(session, id, digest(op), "turn", encode_op(op), create))


async def answers(on: Bench) -> list[str]:
    return [record.text for record in await on.turns()]


# Models


async def test_a_model_that_left_the_app_gives_way_to_the_agents_own_and_it_is_told() -> None:
    """Case 000-1: the commit that starts the next turn stores the new model and tells of it.
    Difference: `model_changed` with the reason `unregistered` tells it; `session_configured` is
    told once in a session's life.
    """
    async with bench() as on:
        on.session = "target"
        await on.submit("one")
        await on.run(app_with("old"))
        assert (await checkpoint_of(on)).model == "old"
        rev, seen = await revision_of(on), len(await on.events())
        await on.submit("two", "m2")
        await die_at(on, app_with("new"), Moment.STEP_STARTED)
        assert await revision_of(on) == rev + 1
        assert (await checkpoint_of(on)).model == "new"
        changed = next(e for e in (await on.events())[seen:] if isinstance(e, ModelChanged))
        assert (changed.model, changed.previous, changed.reason) == ("new", "old", "unregistered")
        await on.run(app_with("new"), SECOND)
        assert await answers(on) == ["old", "new"]


async def test_a_turn_that_is_taken_over_goes_on_with_a_model_that_is_there() -> None:
    """Case 000-1: also in the middle of a turn, in the commit that recovers it."""
    async with bench() as on:
        await on.submit("one")
        await die_at(on, app_with("old"), Moment.STEP_STARTED)
        rev = await revision_of(on)
        await die_at(on, app_with("new"), Moment.STEP_STARTED)
        assert (await revision_of(on), (await checkpoint_of(on)).model) == (rev + 1, "new")
        changed = [e for e in await on.events() if isinstance(e, ModelChanged)]
        assert [(e.model, e.reason) for e in changed] == [("new", "unregistered")]


async def test_a_model_named_with_a_message_wins_over_the_saved_one_that_is_still_there() -> None:
    """Case 000-2: and it stays; without one the saved model wins over the agent's own.
    Difference: the override belongs to a message, not to the worker that opens the session.
    """
    async with bench() as on:
        await on.submit("one")
        await on.run(app_with("kimi-k3"))
        both = app_with("kimi-k2.7", "kimi-k3")
        await on.submit("two", "m2")
        await on.run(both)
        assert (await answers(on))[-1] == (await checkpoint_of(on)).model == "kimi-k3"
        await on.submit(MessageOp(text="three", model="kimi-k2.7"), "m3")
        await on.run(both)
        assert (await answers(on))[-1] == (await checkpoint_of(on)).model == "kimi-k2.7"
        await on.submit("four", "m4")
        await on.run(app_with("kimi-k3", "kimi-k2.7"))
        assert (await answers(on))[-1] == "kimi-k2.7"


async def test_a_change_of_model_is_one_commit_with_its_event_last_in_the_journal() -> None:
    """Case 000-3: the event carries the submission's id, and the checkpoint the same model."""
    async with bench() as on:
        app = app_with("kimi-k3", "kimi-k2.7")
        await on.submit("one")
        await on.run(app)
        rev = await revision_of(on)
        await on.submit(SetModelOp(model="kimi-k2.7"), "S")
        await on.run(app)
        (newest,) = await on.stores.producer.journal_back(on.session, before=None, limit=1)
        assert isinstance(newest, ModelChanged)
        assert (newest.submission_id, newest.model) == ("S", "kimi-k2.7")
        assert (await checkpoint_of(on)).model == "kimi-k2.7"
        assert await revision_of(on) == rev + 1


async def test_a_change_to_an_unknown_model_warns_and_keeps_the_one_that_there_is() -> None:
    """Case 000-3: the model stays as it was. Difference: the submission ends as failed in a
    commit of its own, since each submission ends exactly once; the state in it is the same.
    """
    async with bench() as on:
        app = app_with("kimi-k3")
        await on.submit("one")
        await on.run(app)
        before = await checkpoint_of(on)
        await on.submit(SetModelOp(model="kimi-k9"), "S")
        await on.run(app)
        warned, failed = (await on.events())[-2:]
        assert isinstance(warned, Warned) and warned.code == "unknown_model"
        assert isinstance(failed, TurnFailed) and "kimi-k9" in failed.error.message
        assert await checkpoint_of(on) == before
        assert await on.ending("S") is Ending.FAILED


# The context


async def test_a_session_keeps_the_context_that_it_was_created_with() -> None:
    """Case 000-6: a later submission's context is not looked at. Difference: `session_configured`
    does not repeat the context; the session's own state and each turn carry it.
    """
    seen: list[Mapping[str, str]] = []

    def instruct(turn: TurnContext) -> str:
        seen.append(turn.context)
        return "x"

    async with bench() as on:
        app = app_with("main", instructions=instruct)
        given = '{"workspace_label":"Project One","origin_label":"cron"}'
        await send(on, "s", "m1", MessageOp(text="one"), context=given)
        await on.run(app)
        wrong = '{"workspace_label":"wrong workspace"}'
        await send(on, "s", "m2", MessageOp(text="two"), context=wrong)
        await on.run(app, SECOND)
        assert seen == [PROJECT, PROJECT]
        head = await on.stores.worker.read_head("s")
        assert head is not None and head.context == given
        assert [type(e) for e in await on.events()].count(SessionConfigured) == 1


# Other sessions


async def created(on: Bench, session: str, model: str, **given: str) -> None:
    """A session that has run a turn with a model of its own."""
    own, on.session = on.session, session
    await send(on, session, "m1", MessageOp(text="x"), **given)
    await on.run(app_with(model))
    on.session = own


async def test_asking_to_go_on_with_another_session_tells_its_context_and_opens_nothing() -> None:
    """Case 000-8: the event belongs to the submission; the other session, whose model this worker
    does not have, is not touched. Difference: the event stays in the journal.
    """
    async with bench() as on:
        context = '{"workspace_label":"Project One","origin_label":"cron"}'
        await created(on, "target", "not registered here", context=context)
        mine = on.stores.worker.keys.of("target")
        before = {k: v for k, v in (await own_keys(on)).items() if mine.session("target", "") in k}
        on.session = "current"
        await on.submit("hello")
        await on.run(app_with("main"))
        await on.submit(ResumeSessionOp(target="target"), "R")
        end = await on.run(app_with("main"))
        (newest,) = await on.stores.producer.journal_back("current", before=None, limit=1)
        assert isinstance(newest, SessionResumeRequested)
        assert (newest.submission_id, newest.target) == ("R", "target")
        assert newest.context == PROJECT
        assert (end.how, await on.ending("R")) == ("released", Ending.COMPLETED)
        after = {k: v for k, v in (await own_keys(on)).items() if mine.session("target", "") in k}
        assert len(before) > 4 and after == before


@pytest.mark.parametrize("other", ["missing", "another tenant", "damaged", "deleted"])
async def test_a_session_that_is_not_there_is_warned_of_by_name(other: str) -> None:
    """Case 000-8: nothing is told of it. Difference: the submission ends as failed besides the
    warning, and a session of another tenant, or one that cannot be read, is as good as none.
    """
    async with bench() as on:
        if other == "another tenant":
            await created(on, "x", "main", context='{"secret":"1"}', tenant="t2")
        if other == "damaged":
            await send(on, "x", "m1", MessageOp(text="x"), context='{"secret":')
        if other == "deleted":
            await created(on, "x", "main", context='{"secret":"1"}')
            head = on.stores.worker.keys.of("x").session("x", "head")
            await on.stores.executor.command("HSET", head, "status", "deleted")
        on.session = "current"
        await on.submit(ResumeSessionOp(target="x"), "R")
        await on.run(app_with("main"))
        warned, failed = (await on.events())[-2:]
        assert isinstance(warned, Warned) and "'x'" in warned.text
        assert (warned.code, warned.submission_id) == ("unknown_session", "R")
        assert isinstance(failed, TurnFailed) and failed.error.kind == "unknown_session"
        assert await on.ending("R") is Ending.FAILED
        assert "secret" not in str([e.to_json() for e in await on.events()])

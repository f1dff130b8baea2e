"""Turns between two moves: starts that fail, clean boundaries, and producers that never rest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from changeover_shared._checkpoint import Checkpoint, Execution
from changeover_shared._errors import Busy
from changeover_shared._events import StepStarted, TurnCompleted
from changeover_shared._items import AssistantMessage
from changeover_shared._words import CommitKind, Ending, Next
from changeover_worker._session import signals
from changeover_worker._session.signals import Moment
from changeover_worker._tools.tool import tool
from changeover_worker._turn.draft import Draft
from changeover_worker.testing import ScriptedModel, call, say
from tests.support.holding import Bench, bench
from tests.support.recovering import SECOND, app_of, checkpoint_of, die_at, no_model


@pytest.fixture(autouse=True)
def _no_listener_stays() -> Iterator[None]:
    yield
    signals.listen(None)


async def left_at(on: Bench, **execution: object) -> None:
    """A turn that its holder has left at a boundary, by its lease's end."""
    await on.submit("go")
    grant = await on.claim()
    active = Execution.model_validate(
        {"turn_id": "t_1", "submission_ids": ("m1",), "started_at_ms": 1, **execution}
    )
    checkpoint = Checkpoint(session_id=on.session, model="main", execution=active)
    draft = Draft(CommitKind.START, "t_1", checkpoint, take=(1,))
    commit = draft.to_commit(rev=0, max_step_ms=60_000, next=Next.HOLD, quantum_left=True)
    await on.stores.worker.commit(grant.lease, commit)
    await on.stores.worker.bury(grant.lease.incarnation)


@pytest.mark.parametrize("wish", ["resume", "abort"])
async def test_a_turn_that_was_left_before_its_fourth_step_goes_on_with_it(wish: str) -> None:
    async with bench() as on:
        await left_at(on, next_step=3)
        model = ScriptedModel(say("the fourth"))
        await on.run(app_of(model, on_takeover=wish), SECOND)
        (step,) = [event for event in await on.events() if isinstance(event, StepStarted)]
        assert (step.index, len(model.requests)) == (3, 1)
        assert (await checkpoint_of(on)).stats.aborted_turns == 0
        assert await on.ending() is Ending.COMPLETED


@pytest.mark.parametrize("wish", ["resume", "abort"])
async def test_a_turn_that_was_left_with_its_answer_ends_with_it(wish: str) -> None:
    async with bench() as on:
        answer = AssistantMessage(text="there it is")
        await left_at(on, phase="completion", next_step=1, assistant=answer)
        model = no_model()
        await on.run(app_of(model, on_takeover=wish), SECOND)
        (ended,) = [event for event in await on.events() if isinstance(event, TurnCompleted)]
        assert (ended.text, model.requests) == ("there it is", [])
        stats = (await checkpoint_of(on)).stats
        assert (stats.turns, stats.aborted_turns) == (1, 0)


async def test_a_start_that_is_not_committed_takes_nothing_and_asks_nobody() -> None:
    """Three messages wait as they did, and are answered in their order."""
    async with bench() as on:
        for n in (1, 2, 3):
            await on.submit(f"message {n}", f"m{n}")
        waiting = await on.stores.producer.inbox(on.session)
        silent = no_model()
        await die_at(on, app_of(silent), Moment.BEFORE_COMMIT, "start")
        assert silent.requests == []
        assert await on.stores.producer.inbox(on.session) == waiting
        assert len(waiting) == 3
        await on.run(app_of(ScriptedModel.always(say("ok"))), SECOND)
        assert [r.submission_ids for r in await on.turns()] == [("m1",), ("m2",), ("m3",)]


async def test_a_producer_that_fills_the_inbox_again_and_again_delays_no_turn() -> None:
    """However full the inbox of 8 is at each moment, a turn's model and tool come to their end,
    and what was refused is in nobody's way."""
    sent, refused = 0, 0

    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    async with bench(max_inbox=8) as on:

        async def fill(moment: Moment, session_id: str, detail: str) -> None:
            nonlocal sent, refused
            while len(await on.turns()) < 3:
                try:
                    await on.submit("more", f"more-{sent + 1}")
                except Busy:
                    refused += 1
                    return
                sent += 1

        await on.submit("go")
        signals.listen(fill)
        model = ScriptedModel(call("look"), *[say("ok")] * 100)
        end = await on.run(app_of(model, look))
        assert refused > 8
        records = await on.turns()
        assert (end.how, len(records)) == ("released", 1 + sent)
        assert [r.submission_ids[0] for r in records] == [
            "m1", *(f"more-{n}" for n in range(1, sent + 1))
        ]  # fmt: skip
        assert {r.ending for r in records} == {Ending.COMPLETED}

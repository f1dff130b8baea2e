"""A worker that came second writes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from changeover_shared._checkpoint import Checkpoint
from changeover_shared._words import CommitKind, Ending, Next
from changeover_worker._session import signals
from changeover_worker._session.signals import Moment
from changeover_worker._turn.draft import Draft
from changeover_worker.testing import ScriptedModel, say
from tests.support.holding import Bench, bench
from tests.support.recovering import (
    SECOND,
    app_of,
    checkpoint_of,
    revision_of,
)


@pytest.fixture(autouse=True)
def _no_listener_stays() -> Iterator[None]:
    yield
    signals.listen(None)


@pytest.mark.parametrize("competitor", ["has let it go", "still holds it"])
async def test_a_worker_whose_commit_came_second_writes_nothing_afterwards(
    competitor: str,
) -> None:
    """Case 000-5: the competitor's commit stands byte for byte, and the loser does not even tell
    of its failure."""
    async with bench() as on:
        await on.submit("hello")
        there, go = asyncio.Event(), asyncio.Event()
        asked, answer = asyncio.Event(), asyncio.Event()

        async def listener(moment: Moment, session_id: str, detail: str) -> None:
            if moment is Moment.BEFORE_COMMIT and detail == "end" and not there.is_set():
                there.set()
                await go.wait()
            if moment is Moment.STEP_STARTED and there.is_set():
                asked.set()
                await answer.wait()

        signals.listen(listener)
        loser, held = await on.begin(app_of(ScriptedModel(say("too late"))))
        await there.wait()
        await on.stores.worker.evict(held.lease.incarnation)
        await on.stores.worker.reap(on.partition, [on.session])
        winner, _ = await on.begin(app_of(ScriptedModel(say("first"))), SECOND)
        await asked.wait()
        if competitor == "has let it go":
            answer.set()
            await winner
        before = await on.stores.dump()
        go.set()
        assert (await loser).how == "lost"
        assert await on.stores.dump() == before
        answer.set()
        assert (await winner).how == "released"
        assert [record.text for record in await on.turns()] == ["first"]


async def test_a_holder_whose_state_is_behind_reads_again_and_overwrites_nothing() -> None:
    """Case 000-5: the same under one lease: a commit on a revision that is not the newest is
    refused, and the next one follows what the competitor has written."""
    async with bench() as on:
        await on.submit("hello")
        there, go = asyncio.Event(), asyncio.Event()

        async def listener(moment: Moment, session_id: str, detail: str) -> None:
            if moment is Moment.STEP_STARTED and not there.is_set():
                there.set()
                await go.wait()

        signals.listen(listener)
        run, held = await on.begin(app_of(ScriptedModel.always(say("answer"))))
        await there.wait()
        competitor = (await checkpoint_of(on)).model_copy(update={"metadata": {"won": True}})
        await commit_as(on, held.lease, await revision_of(on), competitor)
        go.set()
        assert (await run).how == "released"
        checkpoint = await checkpoint_of(on)
        assert checkpoint.metadata == {"won": True}
        assert await on.ending() is Ending.COMPLETED


async def commit_as(on: Bench, lease: Any, rev: int, checkpoint: Checkpoint) -> None:
    draft = Draft(CommitKind.RECOVER, "t_1", checkpoint)
    commit = draft.to_commit(rev=rev, max_step_ms=60_000, next=Next.HOLD, quantum_left=True)
    await on.stores.worker.commit(lease, commit)

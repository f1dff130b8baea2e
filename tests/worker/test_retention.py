"""A worker trims what it was granted: a long session stays bounded, its newest turn whole."""

from __future__ import annotations

from typing import Any

import pytest

from changeover_worker._agent import Agent
from changeover_worker._app import App
from changeover_worker._compaction import Compaction
from changeover_worker._models.model import ModelRequest
from changeover_worker._models.scripted import ScriptedAnswer
from changeover_worker.testing import ScriptedModel, say
from tests.support.holding import Bench, bench

KEPT = 100


def app(compaction: Compaction | None = None) -> App:
    def answer(request: ModelRequest) -> ScriptedAnswer:
        return say("a summary" if not request.tools and "summar" in request.instructions else "yes")

    agent = Agent("bot", model="m", compaction=compaction)
    return App(agents=[agent], models={"m": ScriptedModel.by(answer)})


async def turns(on: Bench, first: int, last: int, **given: Any) -> None:
    for k in range(first, last + 1):
        await on.submit(f"message {k}", f"m{k}")
        await on.run(app(**given))


async def test_a_journal_that_grew_too_long_is_trimmed_with_the_next_grant() -> None:
    async with bench(journal_events=KEPT) as on:
        await turns(on, 1, 30)
        events = await on.events()
        assert len(events) <= KEPT + KEPT // 10 + 10
        head = await on.stores.worker.read_head(on.session)
        assert head is not None and head.first_seq == events[0].seq > 1
        assert [event.seq for event in events] == list(range(head.first_seq, head.seq + 1))


async def test_a_follower_from_before_is_told_of_the_gap_by_number() -> None:
    async with bench(journal_events=KEPT) as on:
        await turns(on, 1, 30)
        pulse = await on.stores.producer.pulse(on.session)
        assert pulse is not None and pulse.first_seq > 1


async def test_old_turn_records_go_and_the_transcript_stays_while_it_is_shown() -> None:
    async with bench(turns_kept=10) as on:
        await turns(on, 1, 30)
        records = await on.turns()
        assert 10 <= len(records) <= 12
        assert records[-1].turn_id == "t_30"
        assert len(await on.transcript()) == 60


async def test_the_transcript_before_a_summary_goes_with_its_turn_records() -> None:
    small = Compaction(at_tokens=150, keep_tokens=20)
    async with bench(turns_kept=10) as on:
        await turns(on, 1, 60, compaction=small)
        items = await on.transcript()
        records = await on.turns()
        assert items[0].n > 1
        assert items[0].n <= records[0].first_item
        assert [item.n for item in items] == list(range(items[0].n, items[-1].n + 1))


@pytest.mark.parametrize("setting", ["journal_events", "turns_kept"])
async def test_a_session_within_its_bounds_is_left_alone(setting: str) -> None:
    async with bench(**{setting: KEPT}) as on:
        await turns(on, 1, 5)
        head = await on.stores.worker.read_head(on.session)
        assert head is not None and (head.first_seq, head.first_turn) == (1, 1)
        assert len(await on.turns()) == 5

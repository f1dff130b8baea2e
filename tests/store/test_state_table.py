"""The table of `state.py` is what the scripts do: every cell, driven."""

from __future__ import annotations

import pytest

from changeover_shared._store.state import COLUMNS, TRANSITIONS, Trigger, after
from changeover_shared._words import Status
from tests.support.driving import Driver
from tests.support.fleet import Stores
from tests.support.state_world import TRIGGERS, VARIANTS, Arrange, World


def test_every_status_meets_every_trigger() -> None:
    assert set(TRANSITIONS) == {(before, trigger) for before in COLUMNS for trigger in Trigger}
    assert set(COLUMNS) == {None, *Status}
    assert set(TRIGGERS) == set(Trigger)
    assert set(VARIANTS) == set(COLUMNS)


def test_a_cell_names_statuses_and_words_of_refusals_only() -> None:
    words = {word for cell in TRANSITIONS.values() for word in cell}
    assert {word for word in words if word.islower()} <= {status.value for status in Status}
    assert all(word.islower() or word.isupper() for word in words)


def test_nothing_that_producers_and_workers_do_leaves_quarantine_or_an_end() -> None:
    operators = {
        Trigger.DELETE,
        Trigger.STOP,
        Trigger.REDRIVE,
        Trigger.REDRIVE_WITHOUT,
        Trigger.DEAD_LETTER,
    }
    workers_and_producers = set(Trigger) - operators
    for status in (Status.QUARANTINED, Status.CLOSED):
        reached = {one for trigger in workers_and_producers for one in after(status, trigger)}
        assert reached == {status}
    born_again = {one for one in workers_and_producers if after(Status.DELETED, one)}
    assert born_again == {
        Trigger.SUBMIT,
        Trigger.SUBMIT_LATER,
        Trigger.SUBMIT_INTERRUPTING,
    }


def test_only_a_claim_makes_a_session_held() -> None:
    for (before, trigger), cell in TRANSITIONS.items():
        if "held" in cell and before is not Status.HELD:
            assert (before, trigger) == (Status.READY, Trigger.CLAIM)


@pytest.mark.parametrize("trigger", list(Trigger), ids=lambda trigger: trigger.name.lower())
async def test_the_scripts_do_what_the_table_says(stores: Stores, trigger: Trigger) -> None:
    for before in COLUMNS:
        found = set()
        for arrange in VARIANTS[before]:
            await stores.empty()
            found.add(await _happens(World(Driver(stores)), before, trigger, arrange))
        assert found == TRANSITIONS[before, trigger], before


async def _happens(world: World, before: Status | None, trigger: Trigger, arrange: Arrange) -> str:
    """Bring a session into a status, let something happen, and say what came of it."""
    await arrange(world)
    status = (await world.drive.head()).get("status")
    assert status == before
    outcome = await TRIGGERS[trigger](world)
    if outcome.isupper() and trigger is not Trigger.SECOND_ANSWER:
        assert (await world.drive.head()).get("status") == status, "a refusal changed the status"
    return outcome

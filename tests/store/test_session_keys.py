"""Every key of a session is there from its creation to its deletion, whatever happens to it.

A script that names a missing key is sent away on a cluster for as long as the slot moves, since a
key that does not exist cannot be told from one that has moved already.
"""

from __future__ import annotations

import itertools

import pytest

from changeover_shared._errors import Invalid
from changeover_shared._events import Event
from changeover_shared._identifiers import identifier
from changeover_shared._store.state import Trigger
from changeover_shared._words import Status
from tests.support.driving import Driver
from tests.support.state_world import TRIGGERS, VARIANTS, Arrange, World

KEYS = {
    "head", "work", "inbox", "receipts", "settled", "journal", "checkpoint", "transcript", "turns",
}  # fmt: skip
ENDS = {Trigger.DELETE}
ARRANGED = [
    pytest.param(arrange, id=arrange.__name__)
    for status, variants in VARIANTS.items()
    for arrange in variants
    if status not in (None, Status.DELETED)
]


async def keys_of(drive: Driver) -> set[str]:
    mark = f":s:{drive.session}:"
    return {key.rpartition(":")[2] for key in await drive.stores.dump() if mark in key}


async def missing(drive: Driver) -> set[str]:
    names = sorted(KEYS)
    found = await drive.executor.commands([("EXISTS", drive.key(name)) for name in names])
    return {name for name, there in zip(names, found, strict=True) if not there}


@pytest.mark.parametrize("arrange", ARRANGED)
async def test_every_key_is_there_after_everything_that_can_happen(
    drive: Driver, arrange: Arrange
) -> None:
    """Hole 1: what a key holds may go, the key stays."""
    for trigger in (one for one in Trigger if one not in ENDS):
        one = drive.of(trigger.name)
        world = World(one)
        await arrange(world)
        assert await missing(one) == set()
        await TRIGGERS[trigger](world)
        assert await missing(one) == set(), trigger
        await one.trim(events=0, records=0, items=100)
        await one.purge(window_ms=-1)
        assert await missing(one) == set(), trigger


async def test_a_purge_of_everything_leaves_the_keys(drive: Driver) -> None:
    """Hole 1: the receipts of an idle session may all be old."""
    await drive.finish(await drive.run("m1", "m2"), turn_record="r", items=("one",))
    assert await drive.purge(window_ms=-1) == ["KEPT", "2"]
    assert await drive.receipt("m1") is None
    assert await keys_of(drive) == KEYS
    await drive.submit("m3")
    assert await drive.purge(window_ms=-1) == ["KEPT", "0"]


async def test_the_next_life_has_every_key_as_well(drive: Driver) -> None:
    """Hole 1."""
    lease = await drive.run("m1")
    await drive.commit(lease, context="[]", context_epoch=1)
    await drive.finish(lease)
    for life in ("2", "3"):
        await drive.delete()
        assert await keys_of(drive) == {"head", "journal", "receipts", "settled"}
        await drive.submit(f"life {life}")
        assert await keys_of(drive) == KEYS
        assert (await drive.head())["life"] == life
    await drive.delete()
    await drive.purge(window_ms=-1)
    assert await keys_of(drive) == set()
    await drive.submit("m4")
    assert await keys_of(drive) == KEYS


@pytest.mark.parametrize("id", ["_", "-", "0"])
async def test_what_keeps_a_key_is_the_name_of_no_submission(drive: Driver, id: str) -> None:
    """Hole 1: else an id would be taken before it was used, and its end would take the key."""
    lease = await drive.run(id)
    await drive.finish(lease)
    assert (await drive.receipt(id) or {})["ending"] == "completed"
    await drive.purge(window_ms=-1)
    assert await drive.receipt(id) is None
    assert await keys_of(drive) == KEYS
    with pytest.raises(Invalid):
        identifier("|", field="submission_id")


async def test_a_new_life_has_nothing_to_trim(drive: Driver) -> None:
    """What the life before had written is no record that is still there."""
    for k in itertools.count(1):
        await drive.finish(await drive.run(f"m{k}", nonce=f"n{k}"), turn_record=f"r{k}")
        if k == 3:
            break
    await drive.delete()
    await drive.submit("m4")
    head = await drive.head()
    assert (head["turns"], head["first_turn"]) == ("3", "4")
    lease = await drive.hold(nonce="n4")
    await drive.commit(lease, "start", take=(4,), events=(Event(type="turn_started"),))
    await drive.finish(lease, turn_record="r4")
    before = await drive.head()
    await drive.trim(events=100, records=1)
    assert await drive.head() == before
    assert await drive.bodies("turns") == {4: "r4"}

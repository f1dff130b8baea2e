"""`trim`: what retention does not keep goes, what somebody still needs stays."""

from __future__ import annotations

from changeover_shared._events import Event
from tests.support.driving import Driver

NOTE = Event(type="warning", code="note")


async def turns(drive: Driver, count: int) -> None:
    """So many turns of three events and one item each."""
    for k in range(1, count + 1):
        lease = await drive.run(f"m{k}", nonce=f"n{k}")
        await drive.commit(lease, events=(NOTE, NOTE), items=(f'{{"item":{k}}}',))
        await drive.finish(lease, events=(NOTE,), turn_record=f'{{"turn":{k}}}')


async def test_the_newest_events_are_kept_and_the_gap_is_told(drive: Driver) -> None:
    """Hole 50: `first_seq` says where the journal begins."""
    await turns(drive, 4)
    assert await drive.trim(events=5) == ["OK", "8"]
    assert [int(event["seq"]) for event in await drive.journal()] == [8, 9, 10, 11, 12]
    head = await drive.head()
    assert (head["first_seq"], head["seq"]) == ("8", "12")


async def test_the_newest_turn_stays_whole(drive: Driver) -> None:
    """Hole 51's other side: retention bounds the journal, never the turn that runs."""
    await turns(drive, 2)
    lease = await drive.run("m3", nonce="n3")
    await drive.commit(lease, events=(NOTE,) * 4)
    assert await drive.trim(events=1) == ["OK", "7"]
    assert [int(event["seq"]) for event in await drive.journal()] == [7, 8, 9, 10]


async def test_turn_records_are_kept_by_number(drive: Driver) -> None:
    await turns(drive, 4)
    await drive.trim(records=2)
    assert sorted(await drive.bodies("turns")) == [3, 4]


async def test_items_that_the_context_needs_stay(drive: Driver) -> None:
    """Case S30: whatever is asked."""
    await turns(drive, 4)
    await drive.trim(items=4)
    assert sorted(await drive.bodies("transcript")) == [1, 2, 3, 4]
    lease = await drive.run("m5", nonce="n5")
    await drive.commit(lease, context="[]", context_epoch=1, keep_from=3)
    await drive.trim(items=4)
    assert sorted(await drive.bodies("transcript")) == [3, 4]
    await drive.trim(items=2)
    assert sorted(await drive.bodies("transcript")) == [3, 4]


async def test_a_repeat_changes_nothing_and_nothing_comes_back(drive: Driver) -> None:
    await turns(drive, 3)
    first = await drive.trim(events=4)
    async with drive.unchanged():
        assert await drive.trim(events=4) == first
        assert await drive.trim(events=400, records=400) == first


async def test_an_unknown_session_has_nothing_to_trim(drive: Driver) -> None:
    await drive.submit("m1")
    async with drive.unchanged():
        assert await drive.neighbour().trim() == ["NONE"]
    await drive.wipe_out()
    async with drive.unchanged():
        assert await drive.trim() == ["NONE"]

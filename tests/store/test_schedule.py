"""`schedule`: made once, moved on only as it was seen, and taken away; then through the store."""

from __future__ import annotations

import pytest

from changeover_shared._errors import FormatTooNew, TooManySchedules
from changeover_shared._messages import CheckedMessage
from changeover_shared._ops import MessageOp
from changeover_shared._schedules import Planned, Rhythm
from changeover_shared._store import schedules
from tests.support.driving import Driver

HOUR_MS = 3_600_000


def hourly(text: str = "hello", *, anchor_ms: int = 0) -> Planned:
    said = CheckedMessage(op=MessageOp(text=text), agent="a", queue="a")
    return Planned(rhythm=Rhythm(every_ms=HOUR_MS, anchor_ms=anchor_ms), message=said)


async def test_a_schedule_is_kept_with_its_time(drive: Driver) -> None:
    assert await drive.schedule("s1", due_ms=5000) == ["OK", "5000"]
    held = ["v1", "5000", drive.session, "what s1 does"]
    assert await drive.schedules() == {"s1": (held, 5000)}


async def test_one_that_does_the_same_keeps_its_time(drive: Driver) -> None:
    """Whoever calls it at each start does not put it off."""
    await drive.schedule("s1", due_ms=5000)
    async with drive.unchanged():
        assert await drive.schedule("s1", due_ms=9000, body="other bytes") == ["OK", "5000"]


async def test_one_that_does_something_else_takes_its_place(drive: Driver) -> None:
    await drive.schedule("s1", due_ms=5000)
    await drive.schedule("s1", version="v2", due_ms=9000, body="new")
    assert await drive.schedules() == {"s1": (["v2", "9000", drive.session, "new"], 9000)}


async def test_it_moves_on_once(drive: Driver) -> None:
    """Who comes late, with what he has read before, changes nothing."""
    await drive.schedule("s1", due_ms=5000)
    assert await drive.schedule("s1", seen="v1|5000", due_ms=6000) == ["OK", "6000"]
    async with drive.unchanged():
        assert await drive.schedule("s1", seen="v1|5000", due_ms=6000) == ["OK", "6000"]
        assert await drive.schedule("s1", seen="v1|5000", due_ms=7000) == ["STALE", "6000"]
        assert await drive.schedule("s1", seen="v0|6000", due_ms=7000) == ["STALE", "6000"]


async def test_it_is_put_off_without_losing_its_time_or_what_it_does(drive: Driver) -> None:
    await drive.schedule("s1", due_ms=5000, body="a|b|\n{}")
    put_off = {"seen": "v1|5000", "due_ms": 5000, "look_ms": 5900, "body": ""}
    assert await drive.schedule("s1", **put_off) == ["OK", "5000"]
    assert await drive.schedules() == {"s1": (["v1", "5000", drive.session, "a|b|\n{}"], 5900)}


async def test_what_was_taken_away_does_not_come_back(drive: Driver) -> None:
    """Also not by a leader that has just submitted it."""
    await drive.schedule("s1", due_ms=5000)
    await drive.schedule("s2")
    assert await drive.schedule("s1", seen="v1|5000", version="") == ["OK", "0"]
    async with drive.unchanged():
        assert await drive.schedule("s1", seen="v1|5000", due_ms=6000) == ["NONE"]
    assert list(await drive.schedules()) == ["s2"]


async def test_a_late_copy_makes_no_schedule(drive: Driver) -> None:
    await drive.schedule("s2")
    async with drive.unchanged():
        assert await drive.schedule("s1", not_after_ms=await drive.now() - 1) == ["LATE"]


async def test_there_is_a_most_and_one_that_is_there_may_change(drive: Driver) -> None:
    await drive.schedule("s1", most=1)
    async with drive.unchanged():
        assert await drive.schedule("s2", most=1) == ["FULL", "1", "1"]
    assert (await drive.schedule("s1", version="v2", most=1))[0] == "OK"


# Through the store


async def test_a_client_keeps_finds_and_drops_schedules(drive: Driver) -> None:
    store = drive.stores.producer.schedules
    assert await store.keep("s1", "web:1", hourly(), 5000) == 5000
    assert await store.keep("s1", "web:1", hourly(anchor_ms=7), 9000) == 5000
    assert await store.keep("s2", "web:1", hourly("other"), 6000) == 6000
    assert await store.names() == ["s1", "s2"]
    first, none = await store.named(["s1", "s3"])
    assert none is None
    assert first is not None
    assert (first.due_ms, first.plan()) == (5000, hourly())
    assert [one.name for one in await store.due(5999)] == ["s1"]
    assert [one.name for one in await store.due(6000)] == ["s1", "s2"]
    assert await store.drop("s1")
    async with drive.unchanged():
        assert not await store.drop("s1")
        assert not await store.move(first, 7000)
    assert await store.names() == ["s2"]


async def test_one_that_is_moved_while_it_is_dropped_is_dropped(
    drive: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = drive.stores.producer.schedules
    await store.keep("s1", "web:1", hourly(), 5000)
    read, moved = store.named, False

    async def move_after_reading(names: list[str]) -> list[schedules.Stored | None]:
        nonlocal moved
        found = await read(names)
        if found[0] is not None and not moved:
            moved = True
            assert await store.move(found[0], 6000)
        return found

    monkeypatch.setattr(store, "named", move_after_reading)
    assert await store.drop("s1")
    assert await store.names() == []


async def test_too_many_are_refused(drive: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    store = drive.stores.producer.schedules
    monkeypatch.setattr(schedules, "MOST", 1)
    await store.keep("s1", "web:1", hourly(), 5000)
    async with drive.unchanged():
        with pytest.raises(TooManySchedules, match="1 of 1 schedules; nothing was changed"):
            await store.keep("s2", "web:1", hourly(), 5000)


async def test_what_a_newer_release_wrote_is_told_and_stays(drive: Driver) -> None:
    await drive.schedule("s1", body='{"rhythm": {"moon": "full"}}')
    (found,) = await drive.stores.producer.schedules.named(["s1"])
    assert found is not None
    with pytest.raises(FormatTooNew, match="schedule 's1'"):
        found.plan()

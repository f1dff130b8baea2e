"""Schedules, as callers keep them and see them."""

from __future__ import annotations

from typing import Any

import pytest

from changeover import Debounce, Invalid, Message, Operator, Schedule, TooLarge
from changeover_shared._results import at
from changeover_shared._store.store import Store
from changeover_worker._process.firing import Firing
from tests.client.conftest import World
from tests.support.working import capture

HOUR = 3_600_000


def store(world: World) -> Store:
    assert world.client._store is not None
    return world.client._store


async def test_a_schedule_is_told_and_listed_until_it_is_taken_away(world: World) -> None:
    told = await world.client.schedule(
        "news", "web:1", "What is new?", cron=" 30  7 * * 1-5 ", tz="Europe/Berlin", missed="skip",
        agent="bot", policy=Debounce("1s"), priority=1,
    )  # fmt: skip
    assert told == Schedule(
        name="news", session_id="web:1", due_at_ms=told.due_at_ms, text="What is new?",
        agent="bot", queue="bot", cron="30 7 * * 1-5", tz="Europe/Berlin", missed="skip",
        policy="debounce:1000ms,10000ms", priority=1,
    )  # fmt: skip
    assert told.due_at > at(await store(world).read_time())
    other = await world.client.schedule("hourly", "web:2", Message("go on"), every="1h")
    assert (other.every_ms, other.cron, other.tz) == (HOUR, None, None)
    assert (await world.client.schedules()).items == (other, told)
    assert await world.client.unschedule("news")
    before = await world.stores.dump()
    assert not await world.client.unschedule("news")
    assert await world.stores.dump() == before
    assert (await world.client.schedules()).items == (other,)


async def test_every_is_counted_from_when_it_was_made_and_not_from_a_later_start(
    world: World,
) -> None:
    first = await world.client.schedule("hourly", "web:1", "go on", every="1h")
    now_ms = await store(world).read_time()
    assert now_ms < first.due_at_ms <= now_ms + HOUR
    before = await world.stores.dump()
    assert await world.client.schedule("hourly", "web:1", "go on", every="60m") == first
    assert await world.stores.dump() == before
    changed = await world.client.schedule("hourly", "web:1", "go on", every="2h")
    assert changed.due_at_ms >= first.due_at_ms + HOUR


async def test_schedules_are_read_in_pages_by_name(world: World) -> None:
    for name in ("c", "a", "e", "b", "d"):
        await world.client.schedule(name, "web:1", "hello", every="1h")
    pages, cursor = [], None
    while True:
        page = await world.client.schedules(cursor=cursor, limit=2)
        pages.append([one.name for one in page.items])
        cursor = page.next
        if cursor is None:
            break
    assert pages == [["a", "b"], ["c", "d"], ["e"]]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({}, "cron"),
        ({"every": "1s"}, "every"),
        ({"cron": "30 25 * * *"}, "cron"),
        ({"cron": "30 2 * * *", "tz": "Moon"}, "tz"),
        ({"every": "1h", "missed": "twice"}, "missed"),
        ({"every": "1h", "name": "n" * 201}, "name"),
        ({"every": "1h", "name": "two words"}, "name"),
        ({"every": "1h", "session": "a|b"}, "session"),
        ({"every": "1h", "message": " "}, "message"),
        ({"every": "1h", "policy": "later"}, "policy"),
        ({"every": "1h", "priority": 3}, "priority"),
        ({"every": "1h", "id": "m1"}, "id"),
        ({"every": "1h", "delay": "5m"}, "delay"),
    ],
    ids=str,
)
async def test_what_is_no_schedule_is_refused_before_anything_is_sent(
    world: World, given: dict[str, Any], field: str
) -> None:
    before = await world.stores.dump()
    with pytest.raises(Invalid) as told:
        await world.client.schedule(
            **{"name": "n", "session": "web:1", "message": "hello", **given}
        )
    assert told.value.field == field
    assert await world.stores.dump() == before


async def test_a_schedule_has_a_size(world: World) -> None:
    before = await world.stores.dump()
    with pytest.raises(TooLarge, match="the schedule is 7"):
        await world.client.schedule("n", "web:1", "x" * 70_000, every="1h")
    assert await world.stores.dump() == before


async def test_what_a_schedule_sends_is_what_submit_would_send(world: World) -> None:
    options: dict[str, Any] = {
        "agent": "bot", "queue": "slow", "policy": "steer", "priority": 2,
        "context": {"chat": "1"}, "metadata": {"k": [1]}, "model": "main", "reply_to": "chat",
    }  # fmt: skip
    message = Message("hello", author="ann")
    kept = await world.client.schedule("n", "web:1", message, every="1h", **options)
    firing = Firing(world.stores.worker, capture()[0])
    await firing.look(kept.due_at_ms)
    await world.client.submit("web:2", message, id="m1", **options)
    mine, other = await store(world).snapshots(["web:1", "web:2"])
    assert mine is not None and other is not None
    names = ("agent", "route", "tenant", "priority", "context")
    assert [getattr(mine.head, n) for n in names] == [getattr(other.head, n) for n in names]
    bodies = [(await store(world).inbox(one))[0].body for one in ("web:1", "web:2")]
    assert bodies[0] == bodies[1]
    events = [(await store(world).journal(one))[0] for one in ("web:1", "web:2")]
    assert events[0].body() == events[1].body()
    assert events[0].submission_id == f"schedule:n:{kept.due_at_ms}"
    shape = [(w.kind, w.key, w.due_ms, w.size) for s in (mine, other) for w in s.work.waiting]
    assert shape[0] == shape[1]


async def test_one_that_only_others_can_read_is_listed_with_what_is_plain(world: World) -> None:
    kept = await world.client.schedule("n", "web:1", "hello", every="1h")
    keys = store(world).keys.schedules
    body = f"v2|{kept.due_at_ms}|web:1|" + '{"moon": "full"}'
    await world.stores.executor.command("HSET", keys.by_name, "n", body)
    assert (await world.client.schedules()).items == (
        Schedule(name="n", session_id="web:1", due_at_ms=kept.due_at_ms),
    )
    assert await world.client.unschedule("n")


async def test_a_schedule_that_nobody_serves_is_a_finding(world: World) -> None:
    if world.url is None:
        pytest.skip("the doctor examines servers")
    kept = await world.client.schedule("late", "web:1", "hello", every="1h")
    await world.client.schedule("fine", "web:1", "hello", every="1h")
    found = {one.code: one for one in (await _doctor(world)).findings}
    assert "schedules_overdue" not in found
    keys = store(world).keys.schedules
    (value,) = await world.stores.executor.command("HMGET", keys.by_name, "late")
    late = value.replace(str(kept.due_at_ms).encode(), b"1000", 1)
    await world.stores.executor.command("HSET", keys.by_name, "late", late)
    # Tried again all the while, so its entry in the index is not old.
    again = await store(world).read_time() + 30_000
    await world.stores.executor.command("ZADD", keys.due, again, "late")
    found = {one.code: one for one in (await _doctor(world)).findings}
    one = found["schedules_overdue"]
    assert (one.level, one.remedy) == ("fail", "changeover worker APP")
    assert one.text == "1 schedule overdue by minutes: late"


async def _doctor(world: World) -> Any:
    assert isinstance(world.client, Operator)
    return await world.client.doctor()

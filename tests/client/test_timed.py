"""Messages with a time of their own, as callers give it and as they are told of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from changeover import Debounce, Invalid, Refused, Submission, WaitTimeout
from changeover_shared._results import at
from tests.client.conftest import World

CET = timezone(timedelta(hours=1))


async def due_ms(world: World, session: str) -> int:
    (waiting,) = (await world.stores.worker.read_work(session)).waiting
    return waiting.due_ms


async def soon(world: World, **ahead: int) -> datetime:
    """A time so far ahead on Redis's clock, in whole seconds."""
    assert world.client._store is not None
    now = at(await world.client._store.read_time())
    return (now + timedelta(**ahead)).replace(microsecond=0)


async def test_a_time_is_taken_with_its_zone(world: World) -> None:
    when = await soon(world, hours=3)
    await world.client.submit("web:1", "hello", at=when.astimezone(CET))
    assert await due_ms(world, "web:1") == when.timestamp() * 1000


async def test_a_delay_is_taken_as_a_span_of_time(world: World) -> None:
    before = await soon(world, minutes=5)
    await world.client.submit("web:1", "hello", delay="5m")
    after = await soon(world, minutes=5, seconds=1)
    assert before <= at(await due_ms(world, "web:1")) <= after


@pytest.mark.parametrize("given", [{"at": datetime(1969, 7, 20, tzinfo=UTC)}, {"delay": "0s"}])
async def test_what_has_passed_runs_at_once(world: World, given: dict[str, object]) -> None:
    await world.client.submit("web:1", "hello", **given)  # type: ignore[arg-type]
    assert (await world.client.session("web:1")).status == "ready"


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"at": datetime(2026, 12, 1, 9)}, "at"),
        ({"at": "2026-12-01"}, "at"),
        ({"at": datetime(2026, 12, 1, tzinfo=UTC), "delay": "5m"}, "delay"),
        ({"delay": "soon"}, "delay"),
        ({"delay": timedelta(seconds=-1)}, "delay"),
        ({"delay": "5m", "policy": "interrupt"}, "delay"),
        ({"delay": "5m", "policy": Debounce("1s")}, "delay"),
        ({"at": datetime(9999, 1, 1, tzinfo=UTC)}, "at"),
        ({"delay": "400d"}, "delay"),
    ],
    ids=str,
)
async def test_what_is_no_time_is_refused(
    world: World, given: dict[str, object], field: str
) -> None:
    await world.client.submit("web:0", "is there")
    before = await world.stores.dump()
    with pytest.raises(Invalid) as told:
        await world.client.submit("web:0", "hello", **given)  # type: ignore[arg-type]
    assert told.value.field == field
    assert await world.stores.dump() == before


async def test_of_many_each_has_its_own_time(world: World) -> None:
    when = await soon(world, hours=1)
    items = [
        Submission("web:1", "hello", at=when),
        Submission("web:2", "hello", delay="1000d"),
        Submission("web:3", "hello"),
    ]
    answers = [one async for one in world.client.submit_many(items)]
    assert [isinstance(one, Refused) for one in answers] == [False, True, False]
    assert await due_ms(world, "web:1") == when.timestamp() * 1000
    assert await due_ms(world, "web:3") == 0


async def test_everybody_is_told_when_it_is_due(world: World) -> None:
    when = await soon(world, hours=2)
    receipt = await world.client.submit("web:1", "hello", id="m1", at=when)
    shown = when.isoformat().replace("+00:00", "Z")
    info = await world.client.session("web:1")
    assert (info.status, info.waiting, info.inbox) == ("idle", f"submission m1 until {shown}", 1)
    assert (await world.client.sessions(status="idle")).items == (info,)
    told = await world.client.explain("web:1")
    assert (told.code, told.facts["due_ms"]) == ("scheduled", when.timestamp() * 1000)
    with pytest.raises(WaitTimeout, match=f"it is due at {when.isoformat()[:16]}") as late:
        await world.client.wait("web:1", "m1", timeout="0s")
    assert late.value.due == when
    with pytest.raises(WaitTimeout, match="it is due at"):
        assert [one async for one in world.client.wait_many([receipt], timeout="0s")] == []


async def test_a_wait_says_that_what_is_due_goes_on(world: World) -> None:
    await world.client.submit("web:1", "hello", id="m1")
    with pytest.raises(WaitTimeout, match="it goes on") as late:
        await world.client.wait("web:1", "m1", timeout="0s")
    assert late.value.due is None


async def test_a_message_is_taken_back_before_its_time(world: World) -> None:
    await world.client.submit("web:1", "hello", id="m1", delay="1h")
    assert (await world.client.cancel("web:1", "m1")).answer == "cancelled"
    assert (await world.client.wait("web:1", "m1")).ending == "cancelled"
    assert (await world.client.session("web:1")).waiting is None


async def test_the_turn_of_a_session_hides_what_waits_for_its_time(world: World) -> None:
    """People see what it does now."""
    await world.client.submit("web:1", "later", id="m1", delay="1h")
    await world.client.submit("web:1", "now", id="m2")
    info = await world.client.session("web:1")
    assert (info.status, info.waiting, info.inbox) == ("ready", None, 2)

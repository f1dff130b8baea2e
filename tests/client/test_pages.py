"""Pages of what a session has done: newest first, whole turns whole, cursors that go on."""

from __future__ import annotations

from typing import Any

import pytest

from changeover import Event, Invalid, Page, SessionInfo, SyncClient, UnknownSession
from changeover._pages import checked_after
from changeover._turn_page import TurnBefore
from changeover_shared._events import Delta, ModelChanged, TurnCompleted, TurnStarted, Warned
from changeover_shared._words import Next
from tests.client.conftest import World
from tests.support.servers import SERVERS


def str_of(value: Any) -> str:
    """A test's id; an integer may be too large to be one."""
    return "huge" if type(value) is int and value > 2**64 else str(value)[:20]


def seqs(page: Page[Event]) -> list[int]:
    return [event.seq for event in page.items]


async def test_events_come_one_by_one_with_the_cursor_of_the_older_ones(world: World) -> None:
    await world.client.submit("web:1", "one")
    await world.client.submit("web:1", "two")
    newest = await world.client.events("web:1", limit=1)
    assert (seqs(newest), newest.next) == ([2], "2")
    oldest = await world.client.events("web:1", before=newest.next, limit=1)
    assert (seqs(oldest), oldest.next) == ([1], None)


async def test_three_turns_come_two_and_one(world: World) -> None:
    for n in (1, 2, 3):
        await world.client.submit("web:1", "x", id=f"m:{n}")
        await world.acting.answer("web:1", f"answer {n}")
    first = await world.client.turns("web:1", limit=2)
    assert ([turn.turn_id for turn in first.items], first.next) == (["t_3", "t_2"], "2")
    second = await world.client.turns("web:1", before=first.next, limit=2)
    assert ([turn.turn_id for turn in second.items], second.next) == (["t_1"], None)


async def test_three_items_come_two_and_one(world: World) -> None:
    await world.client.submit("web:1", "x")
    await world.acting.answer("web:1", "an answer")
    await world.client.submit("web:1", "y")
    held = await world.acting.take("web:1")
    await held.start()
    first = await world.client.transcript("web:1", limit=2)
    assert ([item.n for item in first.items], first.next) == ([3, 2], "2")
    second = await world.client.transcript("web:1", before=first.next, limit=2)
    assert ([item.n for item in second.items], second.next) == ([1], None)


async def test_pages_of_sessions_stay_as_they_are_when_a_listed_one_is_touched(
    world: World,
) -> None:
    for name in ("a", "b", "c"):
        await world.client.submit(name, "x")
        await until_later(world, name)
    first = await world.client.sessions(limit=2)
    assert ids(first) == ["c", "b"] and first.next is not None and first.next.endswith(":b")
    await world.client.submit("c", "touched")
    await world.client.submit("a", "touched")
    second = await world.client.sessions(limit=2, cursor=first.next)
    assert (ids(second), second.next) == (["a"], None)


def ids(page: Page[SessionInfo]) -> list[str]:
    return [info.session_id for info in page.items]


async def until_later(world: World, session: str) -> None:
    """Until Redis's clock shows a later millisecond than the session's creation."""
    created = (await world.client.session(session)).created_at_ms
    while True:
        seconds, micros = await world.stores.executor.command("TIME")
        if int(seconds) * 1000 + int(micros) // 1000 > created:
            return


async def two_turns(world: World) -> list[Event]:
    """A turn of 103 events, a warning that belongs to no turn, and a turn of 4; all events."""
    await world.client.submit("web:1", "one", id="m:1")
    held = await world.acting.take("web:1")
    await held.start()
    await held.stream(*"x" * 100)
    await world.client.submit("web:1", "two", id="m:2")
    await held.complete("whole", next=Next.HOLD)
    await held.warn("between")
    await held.start()
    await held.stream("y")
    await held.complete("short")
    return list(await world.stores.producer.journal("web:1"))


async def test_a_turn_is_whole_however_many_events_it_has(world: World) -> None:
    events = await two_turns(world)
    first, second = ([e.seq for e in events if e.turn_id == turn] for turn in ("t_1", "t_2"))
    assert len(first) == 103
    between = next(e.seq for e in events if e.type == "warning")
    assert first[-1] < between < second[0]
    newest = await world.client.turn_events("web:1")
    assert seqs(newest) == second[::-1]
    assert newest.next == str(second[0])
    older = await world.client.turn_events("web:1", before=newest.next)
    assert seqs(older) == list(range(first[-1], first[0] - 1, -1))
    assert [e.seq for e in older.items if e.turn_id == "t_1"] == first[::-1]
    assert [e.type for e in older.items if e.turn_id != "t_1"] == ["message"]
    assert older.next is None
    assert await world.client.turn_events("web:1", before=first[0]) == Page(items=())


async def test_a_turn_in_whose_middle_the_reading_begins_is_left_out(world: World) -> None:
    events = await two_turns(world)
    second = [e.seq for e in events if e.turn_id == "t_2"]
    inside = await world.client.turn_events("web:1", before=second[-1])
    assert inside.items[0].turn_id == "t_1" and len(inside.items) == 104
    first = [e.seq for e in events if e.turn_id == "t_1"]
    assert await world.client.turn_events("web:1", before=first[50]) == Page(items=())


async def test_the_open_turn_is_told_as_far_as_it_has_come(world: World) -> None:
    await world.client.submit("web:1", "one")
    assert await world.client.turn_events("web:1") == Page(items=())
    held = await world.acting.take("web:1")
    await held.start()
    await held.stream("a", "b")
    page = await world.client.turn_events("web:1")
    assert [e.type for e in page.items] == ["delta", "delta", "step_started", "turn_started"]


async def test_a_turn_whose_beginning_is_gone_is_not_told(world: World) -> None:
    events = await two_turns(world)
    first = [e.seq for e in events if e.turn_id == "t_1"]
    keys = world.stores.worker.keys.of("web:1")
    gone = first[2]
    await world.stores.executor.command(
        "XTRIM", keys.session("web:1", "journal"), "MINID", f"{gone}-0"
    )
    await world.stores.executor.command("HSET", keys.session("web:1", "head"), "first_seq", gone)
    newest = await world.client.turn_events("web:1")
    assert newest.items[0].turn_id == "t_2" and newest.next is not None
    assert await world.client.turn_events("web:1", before=newest.next) == Page(items=())


@pytest.mark.parametrize("world", SERVERS, indirect=True)
async def test_the_synchronous_client_reads_the_same_turn(world: World) -> None:
    await two_turns(world)
    assert world.url is not None
    with SyncClient(world.url, settings=world.settings) as client:
        newest = client.turn_events("web:1")
        older = client.turn_events("web:1", before=newest.next)
    assert newest == await world.client.turn_events("web:1")
    assert len(older.items) == 104


def found(*events: Event, ended: bool = False) -> list[int]:
    reader = TurnBefore(ended=ended)
    for event in reversed(events):
        if reader.take(event):
            break
    return [event.seq for event in reader.page(1).items]


def test_a_turn_of_one_event_is_a_turn() -> None:
    changed = ModelChanged(seq=2, model="m", submission_id="s", turn_id="t_1")
    assert found(Warned(seq=1, code="x"), changed, Warned(seq=3, code="y"), ended=True) == [2]


def test_what_was_told_inside_a_turn_belongs_to_it() -> None:
    inside = (
        TurnStarted(seq=2, submission_ids=("m",), turn_id="t_1"),
        Warned(seq=3, code="x"),
        TurnCompleted(seq=4, submission_ids=("m",), turn_id="t_1"),
    )
    assert found(Warned(seq=1, code="a"), *inside, Warned(seq=5, code="b")) == [4, 3, 2]


def test_a_turn_that_goes_on_after_the_place_is_left_out_with_all_that_stands_in_it() -> None:
    events = (
        TurnCompleted(seq=1, submission_ids=("m",), turn_id="t_1"),
        TurnStarted(seq=2, submission_ids=("n",), turn_id="t_2"),
        Warned(seq=3, code="x"),
        Delta(seq=4, text="y", turn_id="t_2"),
    )
    assert found(*events, ended=True) == [1]
    assert found(*events) == [4, 3, 2]


@pytest.mark.parametrize("limit", [0, -1, 1001, 10**5000, True, "7"], ids=str_of)
async def test_a_page_that_is_not_positive_is_refused_and_says_what_it_may_be(
    world: World, limit: Any
) -> None:
    await world.client.submit("web:1", "one")
    client = world.client
    for read in (client.events, client.transcript, client.turns):
        with pytest.raises(Invalid, match=r"limit: .* is not between 1 and 1000"):
            await read("web:1", limit=limit)
    with pytest.raises(Invalid, match=r"limit: .* is not between 1 and 1000"):
        await client.sessions(limit=limit)


@pytest.mark.parametrize(
    "before", [-1, 2**64, 10**5000, "9" * 20, "9" * 5000, "x", "1-0", True, 1.5], ids=str_of
)
async def test_a_place_that_is_no_number_is_refused(world: World, before: Any) -> None:
    await world.client.submit("web:1", "one")
    client = world.client
    for read in (client.events, client.transcript, client.turns, client.turn_events):
        with pytest.raises(Invalid, match="before: "):
            await read("web:1", before=before)


@pytest.mark.parametrize("cursor", ["x", "5", "-1:s", f"{'9' * 5000}:s", 10**5000, 5], ids=str_of)
async def test_a_cursor_that_no_page_gave_is_refused(world: World, cursor: Any) -> None:
    with pytest.raises(Invalid, match="cursor: "):
        await world.client.sessions(cursor=cursor)


@pytest.mark.parametrize("after", [-1, 2**64, 10**5000, True, "5"], ids=str_of)
def test_a_follower_that_begins_nowhere_is_refused(after: Any) -> None:
    with pytest.raises(Invalid, match="after: "):
        checked_after(after)


async def test_a_turn_of_an_unknown_session_is_refused(world: World) -> None:
    with pytest.raises(UnknownSession):
        await world.client.turn_events("web:1")

"""`peek`: what the indexes show, oldest first, and nothing is changed."""

from __future__ import annotations

from tests.support.driving import LATER_MS, ROUTE, SESSION, TTL_MS, Driver


async def test_an_empty_partition_shows_nothing(drive: Driver) -> None:
    assert await drive.peek() == ["OK", [], [], [["0"]], "0", [], ""]


async def test_ready_sessions_are_shown_in_fair_order_within_the_window(drive: Driver) -> None:
    sessions = [drive.neighbour(f"s{i}") for i in range(4)]
    for one in sessions:
        await one.submit("m1")
    names = [one.session for one in sessions]
    async with drive.unchanged():
        assert (await drive.peek(window=3))[3] == [["4", *names[:3]]]


async def test_several_ready_sets_are_shown_in_the_order_asked(drive: Driver) -> None:
    other = drive.neighbour("other", "other@1")
    await other.submit("m1")
    await drive.submit("m1")
    sets = (await drive.peek("none@1", "other@1", ROUTE))[3]
    assert sets == [["0"], ["1", other.session], ["1", SESSION]]


async def test_expired_and_impossible_leases_are_shown_together(drive: Driver) -> None:
    """Hole 49: a lease beyond the longest possible one was granted by another clock."""
    sessions = [drive.neighbour(f"s{i}") for i in range(3)]
    for i, one in enumerate(sessions):
        await one.submit("m1")
        await one.hold(nonce=f"n{i}")
    await sessions[0].expire()
    await sessions[1].expire(await drive.now() + 100 * TTL_MS)
    async with drive.unchanged():
        reply = await drive.peek()
    assert reply[1] == [sessions[0].session, sessions[1].session]


async def test_due_timers_are_shown_and_later_ones_are_not(drive: Driver) -> None:
    late = drive.neighbour("late")
    await late.submit("m1", due_ms=await drive.now() + LATER_MS)
    await drive.submit("m1", due_ms=await drive.now() + LATER_MS)
    await drive.redis("ZADD", drive.shared("timers"), 1, SESSION)
    async with drive.unchanged():
        assert (await drive.peek())[2] == [SESSION]


async def test_no_more_than_thirty_two_of_each_are_shown(drive: Driver) -> None:
    await drive.submit("m1")
    for i in range(40):
        await drive.redis("ZADD", drive.shared("leases"), i, f"l{i}")
        await drive.redis("ZADD", drive.shared("timers"), i, f"t{i}")
    _, expired, due, *_ = await drive.peek()
    assert expired == [f"l{i}" for i in range(32)]
    assert due == [f"t{i}" for i in range(32)]

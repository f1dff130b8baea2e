"""`defer`: a ready session steps aside for a while and keeps its place."""

from __future__ import annotations

from tests.support.driving import ROUTE, Driver

SPAN_MS = 1500


async def test_it_waits_among_the_timers_and_comes_back_to_its_place(drive: Driver) -> None:
    """Hole 44: what is at a limit does not fill the window of each look."""
    await drive.submit("m1")
    tag = (await drive.head())["tag"]
    before = await drive.now()
    answer = await drive.defer()
    assert answer[0] == "OK"
    assert before + SPAN_MS <= int(answer[1]) <= await drive.now() + SPAN_MS
    assert await drive.indexes() == {"timers"}
    assert await drive.score("timers") == int(answer[1])
    await drive.set_head(not_before=1)
    assert await drive.reap() == [["PLACED", "ready"]]
    assert (await drive.head())["tag"] == tag


async def test_a_control_is_not_kept_waiting(drive: Driver) -> None:
    await drive.give_up(await drive.run("m1"))
    await drive.defer()
    await drive.interrupt("i1")
    assert await drive.indexes() == {"ready"}


async def test_what_is_not_ready_is_left_as_it_is(drive: Driver) -> None:
    await drive.run("m1")
    async with drive.unchanged():
        assert await drive.neighbour().defer() == ["NONE"]
    async with drive.unchanged():
        assert await drive.defer() == ["NONE"]
        assert await drive.defer("other@1") == ["ROUTE", ROUTE]


async def test_a_repeat_puts_it_off_no_further_than_it_is(drive: Driver) -> None:
    await drive.submit("m1")
    await drive.defer()
    async with drive.unchanged():
        assert await drive.defer() == ["NONE"]

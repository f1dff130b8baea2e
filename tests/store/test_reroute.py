"""`reroute`: a session waits in another queue, and in that one only."""

from __future__ import annotations

from tests.support.driving import ROUTE, SESSION, Driver

OTHER = "other@1"


async def test_a_ready_session_waits_in_the_new_queue_only(drive: Driver) -> None:
    """Hole 37: no two ready sets hold one session."""
    await drive.submit("m1")
    assert await drive.reroute() == ["OK", "ready", "1"]
    assert await drive.indexes() == set()
    there = drive.of(SESSION, OTHER)
    assert await there.indexes() == {"ready"}
    assert (await drive.head())["route"] == OTHER
    assert (await there.claim())[0][0] == "GRANTED"


async def test_an_idle_session_waits_there_from_its_next_message_on(drive: Driver) -> None:
    await drive.finish(await drive.run("m1"))
    assert await drive.reroute() == ["OK", "idle", "0"]
    async with drive.unchanged():
        assert await drive.submit("m2") == ["ROUTE", OTHER, "assistant"]
    assert (await drive.of(SESSION, OTHER).submit("m2"))[0] == "ACCEPTED"


async def test_a_repeat_changes_nothing(drive: Driver) -> None:
    await drive.submit("m1")
    first = await drive.reroute()
    async with drive.unchanged():
        assert await drive.reroute() == first


async def test_a_held_session_stays(drive: Driver) -> None:
    await drive.run("m1")
    async with drive.unchanged():
        assert (await drive.reroute())[0] == "HELD"


async def test_a_lease_that_ran_out_is_dropped_and_counts_no_attempt(drive: Driver) -> None:
    lease = await drive.run("m1")
    await drive.expire()
    assert await drive.reroute() == ["OK", "ready", "1"]
    head = await drive.head()
    assert (head["attempts"], head["lapsed"], head["lapsed_why"]) == (
        "0", lease.token, "taken_over",
    )  # fmt: skip
    assert await drive.redis("HEXISTS", drive.shared("owners"), SESSION) == 0


async def test_a_quarantined_session_stays_quarantined_in_its_new_queue(drive: Driver) -> None:
    await drive.submit("m1")
    await drive.quarantine()
    assert (await drive.reroute())[:2] == ["OK", "quarantined"]
    assert (await drive.head())["route"] == OTHER


async def test_what_has_ended_or_waits_elsewhere_is_not_moved(drive: Driver) -> None:
    await drive.submit("m1")
    async with drive.unchanged():
        assert await drive.neighbour().reroute() == ["STALE"]
    async with drive.unchanged():
        assert await drive.reroute(**{"from": "third@1"}) == ["ROUTE", ROUTE]
        assert await drive.reroute(not_after=1) == ["LATE"]
    await drive.close(await drive.run("m1"))
    async with drive.unchanged():
        assert await drive.reroute() == ["STALE"]

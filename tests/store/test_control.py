"""`control`: take a waiting submission back, and never what a turn holds."""

from __future__ import annotations

from changeover_shared._store import requests
from tests.support.driving import LATER_MS, SESSION, Driver


async def test_a_waiting_submission_is_cancelled(drive: Driver) -> None:
    await drive.submit("m1")
    await drive.submit("m2")
    assert await drive.cancel("m1", "c1") == ["CANCELLED"]
    receipt = await drive.receipt("m1") or {}
    event = (await drive.journal())[-1]
    assert (receipt["ending"], receipt["turn"], receipt["end_seq"]) == ("cancelled", "", "1")
    assert (event["type"], event["sub"], event["body"]) == (
        "submission_cancelled", "m1", '{"by":"c1"}',
    )  # fmt: skip
    assert sorted(await drive.work()) == ["2"]
    assert sorted(await drive.bodies("inbox")) == [2]
    assert (await drive.status(), await drive.indexes()) == ("ready", {"ready"})


async def test_a_repeat_is_answered_like_the_first_and_changes_nothing(drive: Driver) -> None:
    await drive.submit("m1")
    await drive.cancel("m1", "c1")
    async with drive.unchanged():
        assert await drive.cancel("m1", "c1") == ["CANCELLED"]
    assert (await drive.receipt("c1") or {})["ending"] == "completed"


async def test_the_last_waiting_submission_leaves_an_idle_session(drive: Driver) -> None:
    await drive.submit("m1")
    await drive.cancel("m1")
    assert (await drive.status(), await drive.indexes()) == ("idle", set())


async def test_a_scheduled_submission_leaves_the_timers(drive: Driver) -> None:
    await drive.submit("m1", due_ms=await drive.now() + LATER_MS)
    await drive.cancel("m1")
    assert await drive.indexes() == set()


async def test_a_cancel_leaves_holder_and_parked_turn_alone(drive: Driver) -> None:
    lease = await drive.run("m1")
    await drive.submit("m2")
    assert await drive.cancel("m2", "c1") == ["CANCELLED"]
    assert (await drive.renew(lease))[0][0] == "OK"
    await drive.wait_for(lease)
    await drive.submit("m3")
    assert await drive.cancel("m3", "c2") == ["CANCELLED"]
    assert await drive.status() == "parked"


async def test_what_a_turn_holds_is_running(drive: Driver) -> None:
    """Holes 13 and 14: one outcome; the client may interrupt that turn."""
    await drive.run("m1", "m2")
    async with drive.unchanged():
        assert await drive.cancel("m1") == ["RUNNING", "t_1", "held"]
    assert await drive.receipt("c1") is None


async def test_an_answer_and_a_control_belong_to_their_turn(drive: Driver) -> None:
    await drive.park("w1")
    await drive.answer("w1", "a1")
    await drive.interrupt("i1")
    async with drive.unchanged():
        assert await drive.cancel("a1") == ["RUNNING", "t_1", "ready"]
        assert await drive.cancel("i1") == ["RUNNING", "t_1", "ready"]


async def test_what_has_ended_says_how(drive: Driver) -> None:
    await drive.finish(await drive.run("m1"))
    async with drive.unchanged():
        assert await drive.cancel("m1") == ["ENDED", "completed", "t_1"]


async def test_a_cancelled_submission_has_ended_for_another_request(drive: Driver) -> None:
    await drive.submit("m1")
    await drive.cancel("m1", "c1")
    async with drive.unchanged():
        assert await drive.cancel("m1", "c2") == ["ENDED", "cancelled", ""]


async def test_unknown_submissions_and_sessions_are_unknown(drive: Driver) -> None:
    await drive.submit("m1")
    async with drive.unchanged():
        assert await drive.cancel("m9") == ["UNKNOWN"]
        assert await drive.neighbour().cancel("m1") == ["UNKNOWN"]


async def test_the_route_is_the_sessions_own(drive: Driver) -> None:
    """Hole 37."""
    await drive.submit("m1")
    async with drive.unchanged():
        reply = await drive.cancel("m1", route="elsewhere@1")
    assert reply == ["ROUTE", drive.route, "assistant"]


async def test_a_late_cancel_changes_nothing(drive: Driver) -> None:
    await drive.submit("m1")
    request = requests.control(
        drive.fleet.keys, SESSION, request_id="c1", target="m1", route=drive.route,
        not_after_ms=await drive.now() - 1,
    )  # fmt: skip
    async with drive.unchanged():
        assert await drive.call(request) == ["LATE"]


async def test_a_cancel_of_what_a_quarantined_turn_holds_says_so(drive: Driver) -> None:
    await drive.run("m1")
    await drive.stop()
    async with drive.unchanged():
        assert await drive.cancel("m1") == ["RUNNING", "t_1", "quarantined"]


async def test_a_cancel_in_quarantine_leaves_the_session_there(drive: Driver) -> None:
    await drive.submit("m1")
    await drive.quarantine()
    await drive.submit("m2")
    assert await drive.cancel("m2") == ["CANCELLED"]
    assert (await drive.status(), await drive.indexes()) == ("quarantined", {"quarantine"})

"""`give_up`: a clean end of a lease, from any state, that counts against nobody."""

from __future__ import annotations

import pytest

from changeover_shared._words import GiveUp
from tests.support.driving import LATER_MS, SESSION, Driver, committed


async def test_a_hand_off_leaves_the_open_turn_to_the_next_worker(drive: Driver) -> None:
    lease = await drive.run("m1")
    assert await drive.give_up(lease) == ["OK", "ready", "1"]
    head = await drive.head()
    assert (head["last_rel"], head["lapsed"], head["lapsed_why"]) == (
        lease.token, lease.token, "handed_off",
    )  # fmt: skip
    assert (head["turn"], head["attempts"]) == ("t_1", "0")
    assert await drive.indexes() == {"ready"}
    for table in ("owners", "stalls", "alerts"):
        assert await drive.redis("HEXISTS", drive.shared(table), SESSION) == 0
    assert await drive.kinds() == []


@pytest.mark.parametrize("reason", list(GiveUp))
async def test_a_repeat_is_answered_like_the_first_and_changes_nothing(
    drive: Driver, reason: GiveUp
) -> None:
    lease = await drive.run("m1")
    first = await drive.give_up(lease, reason)
    async with drive.unchanged():
        assert await drive.give_up(lease, reason) == first


async def test_a_repeat_after_the_next_grant_still_says_that_it_was_given_up(
    drive: Driver,
) -> None:
    lease = await drive.run("m1")
    await drive.give_up(lease)
    await drive.hold(incarnation="w2:bb", nonce="n2")
    async with drive.unchanged():
        assert (await drive.give_up(lease))[:2] == ["OK", "held"]


async def test_giving_up_after_a_commit_that_released_is_a_repeat(drive: Driver) -> None:
    """Hole 23: both orders of two clean-up calls are safe."""
    lease = await drive.run("m1")
    await drive.finish(lease)
    async with drive.unchanged():
        assert (await drive.give_up(lease))[:2] == ["OK", "idle"]


async def test_a_commit_after_giving_up_writes_nothing(drive: Driver) -> None:
    """Hole 23: the other order."""
    lease = await drive.run("m1")
    await drive.give_up(lease)
    async with drive.unchanged():
        assert await drive.commit(lease) == ["GONE"]


async def test_a_late_holder_that_nobody_replaced_gives_up_cleanly(drive: Driver) -> None:
    """The expiry is ignored, which avoids a counted takeover."""
    lease = await drive.run("m1")
    await drive.expire()
    assert await drive.give_up(lease) == ["OK", "ready", "1"]
    assert (await drive.head())["attempts"] == "0"


async def test_a_reaped_holder_has_nothing_to_give_up(drive: Driver) -> None:
    lease = await drive.run("m1")
    await drive.expire()
    await drive.reap()
    async with drive.unchanged():
        assert await drive.give_up(lease) == ["GONE"]


async def test_a_superseded_holder_gives_nothing_up(drive: Driver) -> None:
    lease = await drive.run("m1")
    await drive.expire()
    await drive.reap()
    await drive.hold(incarnation="w2:bb", nonce="n2")
    async with drive.unchanged():
        assert await drive.give_up(lease) == ["LOST", "2"]


async def test_a_deleted_session_is_told_so(drive: Driver) -> None:
    lease = await drive.run("m1")
    await drive.wipe_out()
    async with drive.unchanged():
        assert await drive.give_up(lease) == ["DELETED"]


async def test_a_worker_that_is_unable_keeps_the_session_from_the_ready_set_for_a_while(
    drive: Driver,
) -> None:
    """Hole 44: it does not fill the window of the next peek."""
    lease = await drive.run("m1")
    before = await drive.now()
    assert (await drive.give_up(lease, GiveUp.UNABLE))[0] == "OK"
    assert await drive.indexes() == {"timers"}
    assert before + 5_000 <= await drive.score("timers") <= await drive.now() + 5_000
    assert await drive.claim(nonce="n2") == [["NONE"]]
    await drive.set_head(not_before=1)
    assert await drive.reap() == [["PLACED", "ready"]]
    await drive.hold(nonce="n3")
    assert "not_before" not in await drive.head()


async def test_a_release_without_work_is_idle(drive: Driver) -> None:
    await drive.submit("m1")
    lease = await drive.hold()
    await drive.cancel("m1")
    assert await drive.give_up(lease, GiveUp.RELEASE) == ["OK", "idle", "0"]
    assert await drive.indexes() == set()


async def test_a_release_remembers_when_the_session_is_due(drive: Driver) -> None:
    """Hole 16."""
    await drive.submit("m1")
    lease = await drive.hold()
    await drive.cancel("m1")
    due = await drive.now() + LATER_MS
    await drive.submit("m2", due_ms=due)
    await drive.give_up(lease, GiveUp.RELEASE)
    assert (await drive.indexes(), await drive.score("timers")) == ({"timers"}, due)


async def test_a_drain_during_a_park_leaves_the_turn_for_another(drive: Driver) -> None:
    lease = await drive.park("w1")
    await drive.answer("w1")
    lease = await drive.hold(nonce="n2")
    assert (await drive.give_up(lease))[1] == "ready"
    lease = await drive.hold(incarnation="w2:bb", nonce="n3")
    reply = await drive.commit(lease, "answer", consume=(("w1", 2),))
    assert committed(reply)["held"] == "held"

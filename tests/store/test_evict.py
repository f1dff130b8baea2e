"""`evict`: end the leases of one incarnation now, by lease string."""

from __future__ import annotations

from changeover_shared._words import GiveUp
from tests.support.driving import SESSION, Driver


async def test_an_evicted_lease_has_run_out(drive: Driver) -> None:
    """Hole 22."""
    lease = await drive.run("m1")
    assert await drive.evict((SESSION, lease.token)) == ["OK", "1"]
    assert await drive.score("leases") == 0
    assert (await drive.peek())[1] == [SESSION]
    async with drive.unchanged():
        assert await drive.commit(lease) == ["EXPIRED"]


async def test_a_repeat_is_answered_like_the_first_and_changes_nothing(drive: Driver) -> None:
    lease = await drive.run("m1")
    await drive.evict((SESSION, lease.token))
    async with drive.unchanged():
        assert await drive.evict((SESSION, lease.token)) == ["OK", "1"]


async def test_a_late_copy_hits_nothing(drive: Driver) -> None:
    """Hole 22: the next grant is another lease string."""
    lease = await drive.run("m1")
    await drive.give_up(lease, GiveUp.HAND_OFF)
    async with drive.unchanged():
        assert await drive.evict((SESSION, lease.token)) == ["OK", "0"]
    await drive.hold(incarnation="w1:aa", nonce="n2")
    async with drive.unchanged():
        assert await drive.evict((SESSION, lease.token)) == ["OK", "0"]


async def test_an_incarnation_ends_all_of_its_own_and_no_others(drive: Driver) -> None:
    """Hole 24: the last act of a drain."""
    other = drive.neighbour()
    await drive.run("m1", incarnation="w1:aa")
    theirs = await other.run("m1", incarnation="w1:ab", nonce="n2")
    far = drive.of("another partition")
    assert far.partition != drive.partition
    await far.run("m1", incarnation="w1:aa", nonce="n3")
    assert await drive.stores.worker.evict("w1:aa") == 2
    assert (await drive.score("leases"), await far.score("leases")) == (0, 0)
    assert (await other.renew(theirs))[0][0] == "OK"

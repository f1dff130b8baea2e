"""`renew`: a lease lives on while its holder does, and never comes back."""

from __future__ import annotations

import dataclasses

from changeover_shared._words import GiveUp
from tests.support.driving import SESSION, TTL_MS, Driver


async def test_a_lease_is_extended(drive: Driver) -> None:
    """Hole 21: the answer says how much is left."""
    lease = await drive.run("m1")
    await drive.expire(await drive.now() + 5_000)
    (answer,) = await drive.renew(lease)
    assert answer == ["OK", str(TTL_MS), "0", "0"]
    assert await drive.score("leases") > await drive.now() + 5_000


async def test_a_lease_is_never_shortened(drive: Driver) -> None:
    lease = await drive.run("m1")
    end = await drive.score("leases")
    (answer,) = await drive.renew(lease, ttl_ms=1_000)
    assert int(answer[1]) > 1_000
    assert await drive.score("leases") == end


async def test_a_session_past_its_stall_time_is_not_extended(drive: Driver) -> None:
    """Hole 20: a keeper thread does not keep a hung step alive."""
    lease = await drive.run("m1")
    stall = await drive.now() + 10_000
    await drive.redis("HSET", drive.shared("stalls"), SESSION, stall)
    await drive.expire(await drive.now() + 5_000)
    (answer,) = await drive.renew(lease)
    assert (answer[0], await drive.score("leases")) == ("OK", stall)
    await drive.redis("HSET", drive.shared("stalls"), SESSION, 1)
    async with drive.unchanged():
        assert (await drive.renew(lease))[0][0] == "OK"


async def test_an_expired_lease_is_never_revived(drive: Driver) -> None:
    lease = await drive.run("m1")
    await drive.expire()
    async with drive.unchanged():
        assert await drive.renew(lease) == [["EXPIRED", "0", "0", "0"]]


async def test_an_evicted_lease_is_expired(drive: Driver) -> None:
    """Hole 22."""
    lease = await drive.run("m1")
    await drive.evict((SESSION, lease.token))
    async with drive.unchanged():
        assert (await drive.renew(lease))[0][0] == "EXPIRED"


async def test_a_lease_that_was_given_up_is_gone(drive: Driver) -> None:
    lease = await drive.run("m1")
    await drive.give_up(lease, GiveUp.HAND_OFF)
    async with drive.unchanged():
        assert await drive.renew(lease) == [["GONE", "0", "0", "0"]]


async def test_a_superseded_holder_is_told_the_fence(drive: Driver) -> None:
    lease = await drive.run("m1")
    await drive.expire()
    await drive.reap()
    await drive.hold(incarnation="w2:bb", nonce="n2")
    async with drive.unchanged():
        assert await drive.renew(lease) == [["LOST", "0", "0", "2"]]


async def test_a_waiting_control_is_told_until_the_holder_has_committed(drive: Driver) -> None:
    lease = await drive.run("m1")
    await drive.interrupt()
    assert [(await drive.renew(lease))[0][2] for _ in range(2)] == ["1", "1"]
    await drive.commit(lease)
    assert (await drive.renew(lease))[0][2] == "0"


async def test_many_leases_are_answered_one_by_one_in_order(drive: Driver) -> None:
    other = drive.neighbour()
    mine = await drive.run("m1")
    theirs = await other.run("m1", nonce="n2")
    wrong = dataclasses.replace(theirs, nonce="other")
    answers = await drive.renew(wrong, mine, theirs)
    assert [answer[0] for answer in answers] == ["LOST", "OK", "OK"]


async def test_eight_thousand_leases_are_renewed_in_one_call(drive: Driver) -> None:
    """Hole 48: no huge unpack."""
    lease = await drive.run("m1")
    many = 1_000 if drive.executor.plain_scripts else 8_000
    answers = await drive.renew(*[lease] * many)
    assert {answer[0] for answer in answers} == {"OK"}

"""The reference cases of leases: who holds a session, until when, and who comes next."""

from __future__ import annotations

import dataclasses

import pytest

from changeover_shared._store.records import Lease
from changeover_shared._words import GiveUp
from tests.support.driving import SESSION, TTL_MS, Driver, fields


async def refused_everywhere(drive: Driver, lease: Lease, word: str) -> None:
    """Each write of a holder is refused with a word, and changes nothing."""
    async with drive.unchanged():
        assert (await drive.commit(lease))[0] == word
        assert (await drive.append(lease))[0] == word
        assert (await drive.renew(lease))[0][0] == word


async def test_a_grant_belongs_to_one_incarnation_until_it_ends(drive: Driver) -> None:
    """Case S6: asked again by the same claim it is the same grant, extended; everybody else is told
    that it is busy, an incarnation with another claim too. Difference: what makes a claim the same
    is its nonce, not its worker."""
    await drive.submit("m1")
    (first,) = await drive.claim(incarnation="w1:aa", nonce="n1")
    end = await drive.now() + 5_000
    await drive.expire(end)
    (again,) = await drive.claim(incarnation="w1:aa", nonce="n1")
    assert again[:2] == first[:2] == ["GRANTED", "1"]
    assert await drive.score("leases") > end
    lease = await drive.holder()
    async with drive.unchanged():
        for incarnation, nonce in (("w1:aa", "n2"), ("w1:bb", "n1"), ("w2:aa", "n3")):
            (refused,) = await drive.claim(incarnation=incarnation, nonce=nonce)
            assert refused[0] == "BUSY"
    await drive.renew(lease)
    assert await drive.redis("HGET", drive.shared("owners"), SESSION) == lease.token


async def test_a_released_lease_is_no_right_any_more(drive: Driver) -> None:
    """Case S6: the fence of the next grant is higher, and neither the old lease nor the old nonce
    ends it."""
    await drive.submit("m1")
    old = await drive.hold(nonce="n1")
    await drive.give_up(old, GiveUp.HAND_OFF)
    await refused_everywhere(drive, old, "GONE")
    new = await drive.hold(nonce="n2")
    assert new.fence == old.fence + 1
    await refused_everywhere(drive, old, "LOST")
    async with drive.unchanged():
        assert (await drive.give_up(old))[:2] == ["OK", "held"]
        assert (await drive.claim(nonce="n1"))[0][0] == "BUSY"
    assert (await drive.renew(new))[0][0] == "OK"


async def test_a_lease_of_no_time_is_free_at_once(drive: Driver) -> None:
    """Case S6: it can be claimed as soon as it has been seen to be over, with a higher fence."""
    await drive.submit("m1")
    old = await drive.hold(ttl_ms=0, nonce="n1")
    await refused_everywhere(drive, old, "EXPIRED")
    await drive.reap()
    assert (await drive.hold(incarnation="w2:bb", nonce="n2")).fence == old.fence + 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"fence": 2},
        {"incarnation": "w1:ab"},
        {"incarnation": "w2:aa"},
        {"nonce": "nonce-2"},
        {"session_id": "another"},
    ],
    ids=str,
)
async def test_a_write_matches_the_grant_in_everything(
    drive: Driver, wrong: dict[str, str]
) -> None:
    """Cases S6, S32: session, worker, boot, grant and fence; an altered lease renews nothing."""
    lease = await drive.run("m1")
    if "session_id" in wrong:
        wrong = {"session_id": drive.neighbour(wrong["session_id"]).session}
    altered = dataclasses.replace(lease, **wrong)  # type: ignore[arg-type]
    word = "GONE" if "session_id" in wrong else "LOST"
    async with drive.unchanged():
        assert (await drive.renew(altered))[0][0] == word
        assert (await drive.append(altered))[0] == word
        assert (await drive.commit(altered, rev=0, turn=""))[0] == word
        assert (await drive.give_up(altered))[0] == word
        assert await drive.evict((altered.session_id, altered.token)) == ["OK", "0"]


async def test_a_lease_ends_in_the_millisecond_of_its_end(drive: Driver) -> None:
    """Case S32: its end must lie later than now, strictly."""
    lease = await drive.run("m1")
    await drive.expire(await drive.now())
    await refused_everywhere(drive, lease, "EXPIRED")
    await drive.expire(await drive.now() + TTL_MS)
    assert (await drive.renew(lease))[0][0] == "OK"


async def test_only_who_names_a_live_lease_ends_it(drive: Driver) -> None:
    """Case S7: a claim never does, however dead the holder looks; an end is by the lease string
    that was seen, and one that is out of date ends nothing. Difference: no process says of another
    that it is dead by a look at its host; a supervisor ends what its own child held, an operator
    what a named worker holds, and everybody else waits for the end of the lease."""
    dead = await drive.run("m1", incarnation="w1:aa")
    async with drive.unchanged():
        assert (await drive.claim(incarnation="w2:bb", nonce="n2"))[0][0] == "BUSY"
        assert await drive.reap() == [["BUSY", "held"]]
        assert await drive.evict((SESSION, "9|w1:aa|other")) == ["OK", "0"]
    assert await drive.evict((SESSION, dead.token)) == ["OK", "1"]
    await drive.reap()
    successor = await drive.hold(incarnation="w2:bb", nonce="n2")
    assert successor.fence == dead.fence + 1
    async with drive.unchanged():
        assert await drive.evict((SESSION, dead.token)) == ["OK", "0"]
        assert (await drive.claim(incarnation="w3:cc", nonce="n3"))[0][0] == "BUSY"


async def test_an_expired_holder_needs_no_end_by_name(drive: Driver) -> None:
    """Case S7: it is seen to be over, and the session is claimed like any other."""
    dead = await drive.run("m1")
    await drive.expire()
    assert (await drive.peek())[1] == [SESSION]
    await drive.reap()
    assert (await drive.hold(incarnation="w2:bb", nonce="n2")).fence == dead.fence + 1


async def test_a_second_grant_to_one_worker_is_refused_and_disturbs_nothing(drive: Driver) -> None:
    """Case S34: two opens of a session in one process are two claims."""
    lease = await drive.run("m1", incarnation="w1:aa", nonce="n1")
    async with drive.unchanged():
        (second,) = await drive.claim(incarnation="w1:aa", nonce="n2")
        assert second[0] == "BUSY"
    assert (await drive.append(lease))[0] == "OK"


async def test_a_renewal_that_finds_no_lease_is_a_refusal(drive: Driver) -> None:
    """Case S35: given up, lost, run out or of a session that never was; none comes back."""
    lease = await drive.run("m1")
    nobody = dataclasses.replace(lease, session_id=drive.neighbour().session)
    async with drive.unchanged():
        assert await drive.renew(nobody) == [["GONE", "0", "0", "0"]]
    await drive.redis("ZREM", drive.shared("leases"), SESSION)
    async with drive.unchanged():
        assert await drive.renew(lease) == [["EXPIRED", "0", "0", "0"]]
    await drive.redis("HDEL", drive.shared("owners"), SESSION)
    async with drive.unchanged():
        assert await drive.renew(lease) == [["GONE", "0", "0", "0"]]


@pytest.mark.parametrize("ended", ["expired", "evicted", "handed_off"])
async def test_a_grant_says_who_lapsed_before_it(drive: Driver, ended: str) -> None:
    """Case S31: with its fence, in the answer and, for another worker, in the journal. Difference:
    when the lapsed lease would have ended is not said; why it ended is."""
    old = await drive.run("m1")
    match ended:
        case "expired":
            await drive.expire()
        case "evicted":
            await drive.evict((SESSION, old.token))
        case _:
            await drive.give_up(old, GiveUp.HAND_OFF)
    await drive.reap()
    (answer,) = await drive.claim(incarnation="w2:bb", nonce="n2")
    assert answer[:2] == ["GRANTED", str(old.fence + 1)]
    assert answer[3] == old.token
    why = {"expired": "taken_over"}.get(ended, ended)
    event = (await drive.journal())[-1]
    assert (event["type"], event["fence"]) == ("worker_changed", str(old.fence + 1))
    assert event["body"] == f'{{"reason":"{why}","previous":"w1:aa","current":"w2:bb"}}'


async def test_a_grant_after_nobody_says_nobody(drive: Driver) -> None:
    """Case S31: after a first claim, the repeat of one, and a clean release."""
    await drive.submit("m1")
    for _ in range(2):
        (answer,) = await drive.claim(nonce="n1")
        assert answer[:4] == ["GRANTED", "1", str(TTL_MS), ""]
    await drive.give_up(await drive.holder(), GiveUp.RELEASE)
    (answer,) = await drive.claim(incarnation="w2:bb", nonce="n2")
    assert (answer[1], answer[3]) == ("2", "")
    assert "worker_changed" not in await drive.kinds()


async def test_a_successor_goes_on_with_what_the_predecessor_held(drive: Driver) -> None:
    """Case S29: the clock is the store's, so its lease is made to have run out."""
    predecessor = await drive.run("m1")
    await drive.submit("s1", policy="steer")
    await drive.commit(predecessor, "take", take=(2,))
    await drive.expire(await drive.now() - 1)
    async with drive.unchanged():
        assert await drive.commit(predecessor, "end", end="completed") == ["EXPIRED"]
    await drive.reap()
    (answer,) = await drive.claim(incarnation="w2:bb", nonce="n2")
    held = {n: parts.split("|")[2] for n, parts in fields(answer[5]).items() if n != "_"}
    assert held == {"1": "t_1", "2": "t_1"}
    async with drive.unchanged():
        assert await drive.commit(predecessor, "end", end="completed") == ["LOST", "2"]
    await drive.finish(await drive.holder())
    for id in ("m1", "s1"):
        receipt = await drive.receipt(id) or {}
        assert (receipt["ending"], receipt["turn"]) == ("completed", "t_1")


async def test_looking_for_work_that_is_not_there_writes_nothing(drive: Driver) -> None:
    """Case S11: an empty queue, one whose work is for later, and one that is held. Difference: the
    look is a script that may not write at all, so there is no count of reads and writes."""
    await drive.finish(await drive.run("m1"))
    async with drive.unchanged():
        assert (await drive.peek())[1:] == [[], [], [["0"]], "0", [], ""]
        assert await drive.claim(nonce="n2") == [["NONE"]]
    await drive.submit("m2", due_ms=await drive.now() + 10 * TTL_MS)
    async with drive.unchanged():
        assert (await drive.peek())[1:] == [[], [], [["0"]], "0", [], ""]
        assert await drive.claim(nonce="n2") == [["NONE"]]
    await drive.make_due(2)
    await drive.reap()
    assert (await drive.peek())[3] == [["1", SESSION]]
    assert (await drive.claim(nonce="n2"))[0][0] == "GRANTED"
    async with drive.unchanged():
        assert (await drive.peek())[3] == [["0"]]
        assert (await drive.claim(nonce="n3"))[0][0] == "BUSY"


async def test_what_is_for_later_can_be_told_from_nothing(drive: Driver) -> None:
    """Case S37: a claim is refused alike; the timers say when, and a look shows what is due.
    Difference: why there is nothing is read from the indexes, not from the refusal."""
    await drive.finish(await drive.run("m1"))
    assert (await drive.status(), await drive.indexes()) == ("idle", set())
    due = await drive.now() + 10 * TTL_MS
    await drive.submit("m2", due_ms=due)
    assert (await drive.status(), await drive.indexes()) == ("idle", {"timers"})
    assert await drive.score("timers") == due
    assert await drive.claim(nonce="n2") == [["NONE"]]
    await drive.redis("ZADD", drive.shared("timers"), 1, SESSION)
    assert (await drive.peek())[2] == [SESSION]


async def test_a_second_client_finds_the_session_as_it_is(drive: Driver, second: Driver) -> None:
    """Case S28: head, work, inbox and state are the store's, not a connection's."""
    lease = await drive.run("m1")
    await drive.submit("m2")
    assert await second.head() == await drive.head()
    assert await second.work() == await drive.work()
    assert await second.stores.worker.read_checkpoint(SESSION) == b"state after start"
    assert (await second.renew(lease))[0][0] == "OK"
    await second.finish(lease)
    assert (await drive.receipt("m1") or {})["ending"] == "completed"

"""`delete`: what is open ends, a tombstone keeps the counters, a late copy ends no other life."""

from __future__ import annotations

from typing import Any

import pytest

from changeover_shared._store.records import NewWait
from tests.support.driving import SESSION, Driver, accepted

WINDOW_MS = 86_400_000


async def test_everything_open_is_cancelled_and_counted(drive: Driver) -> None:
    """Hole 33: no accepted submission vanishes."""
    lease = await drive.run("m1")
    await drive.commit(lease, waits=(NewWait("w1", "approval"),))
    await drive.submit("m2")
    await drive.answer("w1", "a1")
    await drive.interrupt("i1")
    assert (await drive.delete())[0] == "OK"
    for one in ("m1", "m2", "a1", "i1"):
        found = await drive.receipt(one)
        assert found is not None and found["ending"] == "cancelled"
    kinds = await drive.kinds()
    assert kinds == ["submission_cancelled"] * 3 + ["session_deleted"]


async def test_a_tombstone_keeps_the_counters_and_raises_the_fence(drive: Driver) -> None:
    """Hole 34."""
    lease = await drive.run("m1")
    await drive.finish(lease)
    before = await drive.head()
    await drive.delete()
    after = await drive.head()
    assert after["status"] == "deleted"
    assert int(after["fence"]) == int(before["fence"]) + 1
    for name in ("life", "rev", "n", "turns", "transcript_n"):
        assert after.get(name) == before.get(name)
    assert int(after["seq"]) == int(before["seq"]) + 1
    assert set(after) <= {
        "v", "life", "status", "fence", "seq", "first_seq", "rev", "n", "turns", "transcript_n",
        "epoch", "epoch_seq", "at_ms", "dedup_floor", "deleted_ms", "used_nonce",
    }  # fmt: skip


async def test_nothing_but_the_tombstone_the_journal_and_the_receipts_is_left(
    drive: Driver,
) -> None:
    lease = await drive.run("m1")
    await drive.commit(lease, context="[]", context_epoch=1)
    await drive.finish(lease)
    await drive.delete()
    left = await drive.stores.keys(f"*s:{SESSION}:*")
    assert sorted(key.rpartition(":")[2] for key in left) == [
        "head", "journal", "receipts", "settled",
    ]  # fmt: skip
    for name in ("journal", "receipts", "settled"):
        assert 0 < int(await drive.redis("PTTL", drive.key(name))) <= WINDOW_MS
    assert await drive.redis("PTTL", drive.key("head")) == -1
    assert await drive.indexes() == set()
    assert await drive.redis("ZSCORE", drive.shared("sessions"), SESSION) is None
    assert await drive.redis("ZSCORE", drive.shared("graves"), SESSION) is not None
    for table in ("owners", "stalls", "alerts"):
        assert await drive.redis("HEXISTS", drive.shared(table), SESSION) == 0


async def test_a_follower_is_told_where_the_journal_goes_on(drive: Driver) -> None:
    lease = await drive.run("m1")
    await drive.finish(lease)
    await drive.submit("m2")
    await drive.delete()
    journal = await drive.journal()
    assert int((await drive.head())["first_seq"]) == int(journal[0]["seq"])
    assert [event["type"] for event in journal] == ["submission_cancelled", "session_deleted"]
    assert journal[-1]["body"] == '{"reason":"because"}'


async def test_a_holder_is_refused_from_then_on(drive: Driver) -> None:
    lease = await drive.run("m1")
    await drive.delete()
    async with drive.unchanged():
        assert await drive.append(lease) == ["DELETED"]
        assert await drive.commit(lease) == ["DELETED"]
        assert await drive.give_up(lease) == ["DELETED"]
        assert (await drive.renew(lease))[0][0] == "GONE"


async def test_a_repeat_is_answered_like_the_first_and_changes_nothing(drive: Driver) -> None:
    await drive.submit("m1")
    first = await drive.delete()
    async with drive.unchanged():
        assert await drive.delete() == first


async def test_a_late_copy_ends_no_other_life(drive: Driver) -> None:
    """Hole 32: a delete names the life that it ends."""
    await drive.submit("m1")
    await drive.delete()
    assert accepted(await drive.submit("m2"))["status"] == "ready"
    head = await drive.head()
    assert head["life"] == "2"
    async with drive.unchanged():
        assert await drive.delete(life="1") == ["STALE", "2"]


async def test_the_next_life_goes_on_from_the_counters(drive: Driver) -> None:
    lease = await drive.run("m1")
    await drive.finish(lease)
    await drive.delete()
    before = await drive.head()
    await drive.submit("m2")
    again = await drive.hold(incarnation="w2:bb", nonce="n2")
    assert again.fence == int(before["fence"]) + 1
    head = await drive.head()
    assert int(head["n"]) == int(before["n"]) + 1
    assert int(head["first_seq"]) == int(before["seq"]) + 1
    for name in ("journal", "receipts", "settled"):
        assert await drive.redis("PTTL", drive.key(name)) == -1


async def test_a_late_copy_of_a_claim_takes_no_lease_in_the_next_life(drive: Driver) -> None:
    """Hole 2 across a deletion: the tombstone remembers the nonce."""
    lease = await drive.run("m1")
    await drive.delete()
    await drive.submit("m2")
    async with drive.unchanged():
        assert await drive.claim(nonce=lease.nonce) == [["USED"]]


async def test_a_submission_of_the_old_life_stays_a_duplicate(drive: Driver) -> None:
    """Receipts survive a deletion for the window."""
    await drive.submit("m1")
    await drive.delete()
    assert (await drive.submit("m1"))[0] == "DUPLICATE"


@pytest.mark.parametrize(
    ("overrides", "reply"),
    [
        ({"life": 7}, ["STALE", "1"]),
        ({"route": "other@1"}, ["ROUTE", "assistant@1", "assistant"]),
        ({"prefix_epoch": 3}, ["CONTEXT", "0"]),
        ({"not_after": 1}, ["LATE"]),
    ],
)
async def test_a_refused_deletion_changes_nothing(
    drive: Driver, overrides: dict[str, Any], reply: list[str]
) -> None:
    await drive.run("m1")
    async with drive.unchanged():
        assert await drive.delete(**overrides) == reply


async def test_a_quarantined_session_leaves_the_quarantine(drive: Driver) -> None:
    await drive.submit("m1")
    await drive.quarantine()
    assert "quarantine" in await drive.indexes()
    await drive.delete()
    assert await drive.indexes() == set()


async def test_a_session_that_moved_on_is_not_deleted_by_who_saw_it_before(drive: Driver) -> None:
    await drive.finish(await drive.run("m1"))
    seq = int((await drive.head())["seq"])
    async with drive.unchanged():
        assert await drive.delete(at_seq=seq + 1) == ["MOVED", str(seq)]
    await drive.submit("m2")
    async with drive.unchanged():
        assert await drive.delete(at_seq=seq) == ["MOVED", str(seq)]
    await drive.finish(await drive.run("m2", nonce="n2"))
    first = await drive.delete(at_seq=seq)
    assert first[0] == "OK"
    assert await drive.delete(at_seq=seq) == first

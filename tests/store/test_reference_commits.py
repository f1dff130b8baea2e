"""The reference cases of commits: one revision after another, all or nothing, answered again."""

from __future__ import annotations

import dataclasses

from changeover_shared._events import Event
from changeover_shared._store import requests
from changeover_shared._store.records import Lease, NewWait, OutboxRow
from changeover_shared._words import GiveUp
from tests.support.driving import SESSION, Driver, committed


async def taken_over(drive: Driver, *, incarnation: str = "w2:bb", nonce: str = "n2") -> Lease:
    """The lease runs out and another worker is granted the session."""
    await drive.expire()
    assert await drive.reap() == [["PLACED", "ready"]]
    return await drive.hold(incarnation=incarnation, nonce=nonce)


async def test_each_commit_is_one_revision_and_is_read_back(drive: Driver) -> None:
    """Case S1: state, items, the rewritten context and the turn's record are bytes."""
    body = 'ünicode "quotes" \\ and | bars'
    lease = await drive.run("m1")
    for rev in (2, 3):
        assert committed(await drive.commit(lease, checkpoint=f"{body} {rev}"))["rev"] == str(rev)
        assert (await drive.head())["rev"] == str(rev)
    await drive.commit(lease, context=body, context_epoch=1, items=(body, "two"))
    await drive.finish(lease, checkpoint=body, turn_record=body)
    assert (await drive.head())["rev"] == "5"
    worker = drive.stores.worker
    assert await worker.read_checkpoint(SESSION) == body.encode()
    assert await worker.read_context(SESSION, 1) == body.encode()
    assert await drive.bodies("transcript") == {1: body, 2: "two"}
    assert await drive.bodies("turns") == {1: body}


async def test_a_commit_names_its_own_session_in_everything(drive: Driver) -> None:
    """Case S3: neither a row for another session nor another session's lease is taken."""
    lease = await drive.run("m1")
    other = drive.neighbour()
    theirs = await other.run("m1", nonce="n2")
    rows = (OutboxRow("r1", SESSION, "{}"), OutboxRow("r2", other.session, "{}"))
    async with drive.unchanged():
        assert await drive.commit(lease, outbox=rows) == ["BINDING"]
        strange = dataclasses.replace(theirs, session_id=SESSION)
        assert await drive.commit(strange) == ["LOST", "1"]
        never_seen = dataclasses.replace(theirs, session_id=drive.neighbour("nobody").session)
        assert await drive.commit(never_seen, rev=0, turn="") == ["GONE"]


async def test_the_repeat_of_a_final_commit_needs_no_lease(drive: Driver) -> None:
    """Case S5: whatever became of the lease, the answer is the first one. Difference: a commit is
    known by the id that it was given, not by a hash of what it writes, so another content under the
    same id is answered like the first one, and written no more than that; an earlier commit than
    the last one is refused by its revision."""
    lease = await drive.run("m1")
    earlier = requests.commit(drive.fleet.keys, lease, await drive.commit_of("step"))
    await drive.call(earlier)
    last = await drive.commit_of("end", end="completed", next="release", progress=True)
    request = requests.commit(drive.fleet.keys, lease, last)
    first = await drive.call(request)
    await drive.submit("m2")
    await drive.hold(incarnation="w2:bb", nonce="n2")
    async with drive.unchanged():
        assert await drive.call(request) == ["REPLAY", *first[1:]]
        other = dataclasses.replace(last, checkpoint="other", items=("other",))
        changed = requests.commit(drive.fleet.keys, lease, other)
        assert await drive.call(changed) == ["REPLAY", *first[1:]]
        assert await drive.call(earlier) == ["LOST", "2"]


async def test_an_end_under_another_lease_settles_nothing(drive: Driver) -> None:
    """Case S21: with the right one both inputs are settled."""
    lease = await drive.run("m1", "m2")
    for wrong in (
        dataclasses.replace(lease, nonce="another"),
        dataclasses.replace(lease, incarnation="w2:bb"),
        dataclasses.replace(lease, fence=2),
    ):
        async with drive.unchanged():
            refused = await drive.commit(wrong, "end", end="completed", next="release")
            assert refused[0] == "LOST"
    await drive.finish(lease)
    for id in ("m1", "m2"):
        assert (await drive.receipt(id) or {})["ending"] == "completed"
    assert (await drive.work(), await drive.bodies("inbox")) == ({}, {})


async def test_a_commit_settles_everything_together_or_nothing(drive: Driver) -> None:
    """Case S23: one stale part refuses the whole; the repeat of one that succeeded adds no row."""
    lease = await drive.run("m1")
    await drive.commit(lease, waits=(NewWait("w1", "approval"),))
    await drive.answer("w1", "a1")
    whole = await drive.commit_of(
        "end",
        end="completed",
        next="release",
        consume=(("w1", 2),),
        items=("one",),
        events=(Event(type="turn_completed"),),
        turn_record="the record",
        outbox=(OutboxRow("r1", SESSION, "{}"), OutboxRow("r2", SESSION, "{}")),
    )
    for stale in (
        dataclasses.replace(whole, consume=(("w1", 2), ("w9", 3))),
        dataclasses.replace(whole, take=(7,)),
        dataclasses.replace(whole, outbox=(*whole.outbox, OutboxRow("r3", "another", "{}"))),
    ):
        async with drive.unchanged():
            refused = await drive.call(requests.commit(drive.fleet.keys, lease, stale))
            assert refused[0] in ("INPUT", "BINDING")
    request = requests.commit(drive.fleet.keys, lease, whole)
    first = await drive.call(request)
    for id in ("m1", "a1"):
        assert (await drive.receipt(id) or {})["ending"] == "completed"
    assert await drive.bodies("transcript") == {1: "one"}
    rows = await drive.redis("XRANGE", drive.shared("outbox"), "-", "+")
    assert [flat[1] for _, flat in rows] == ["r1", "r2"]
    async with drive.unchanged():
        assert await drive.call(request) == ["REPLAY", *first[1:]]


async def test_a_commit_that_met_another_write_is_sent_again_as_it_was(drive: Driver) -> None:
    """Case S40: what producers write meanwhile moves no revision, so the same bytes are written,
    once. Difference: nothing answers that it was contended; scripts of a session run one after the
    other, and a commit that a submission overtakes succeeds at its first attempt."""
    lease = await drive.run("m1")
    commit = await drive.commit_of("step", items=("one",))
    request = requests.commit(drive.fleet.keys, lease, commit)
    await drive.submit("m2")
    await drive.interrupt("i1")
    await drive.cancel("m2")
    assert (await drive.call(request))[0] == "OK"
    assert (await drive.call(request))[0] == "REPLAY"
    assert await drive.bodies("transcript") == {1: "one"}


async def test_only_the_live_holder_gives_inputs_back(drive: Driver) -> None:
    """Case S38: what a lost holder held stays with the turn until the next one decides."""
    lease = await drive.run("m1", "m2")
    held = await drive.work()
    back = {"end": "requeue", "next": "release"}
    await drive.expire()
    async with drive.unchanged():
        assert await drive.commit(lease, "end", **back) == ["EXPIRED"]
    await drive.reap()
    async with drive.unchanged():
        assert await drive.commit(lease, "end", **back) == ["GONE"]
    successor = await drive.hold(incarnation="w2:bb", nonce="n2")
    async with drive.unchanged():
        assert await drive.commit(lease, "end", **back) == ["LOST", "2"]
    assert await drive.work() == held
    await drive.finish(successor, end="requeue")
    assert {parts[2] for parts in (await drive.work()).values()} == {""}


async def test_a_release_leaves_what_another_holds(drive: Driver) -> None:
    """Case S6: an old holder's release does not end a newer lease."""
    lease = await drive.run("m1")
    successor = await taken_over(drive)
    async with drive.unchanged():
        assert await drive.give_up(lease, GiveUp.RELEASE) == ["LOST", "2"]
        finished = await drive.commit(lease, "end", end="completed", next="release")
        assert finished == ["LOST", "2"]
    assert (await drive.renew(successor))[0][0] == "OK"

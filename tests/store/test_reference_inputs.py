"""The reference cases of what waits: sources, order, what a turn takes, gives back and settles."""

from __future__ import annotations

import pytest

from changeover_shared._store.records import Lease, NewWait
from tests.support.driving import SESSION, Driver, accepted, committed

FAR_FUTURE_MS = 300 * 86_400_000
"""From now on; the references say the year 2100, which is further than a message may wait."""


async def ending(drive: Driver, submission: str) -> str:
    return (await drive.receipt(submission) or {})["ending"]


async def holders(drive: Driver) -> dict[str, str]:
    """Which turn holds what: position -> turn, or ''."""
    return {n: parts[2] for n, parts in (await drive.work()).items()}


async def passed_on(drive: Driver, how: str, lease: Lease) -> Lease:
    """The lease of another worker, after the given one has ended."""
    if how == "released":
        await drive.give_up(lease)
    else:
        await drive.expire()
        await drive.reap()
    return await drive.hold(incarnation="w2:bb", nonce=f"after {how}")


async def test_a_known_id_is_the_submission_that_it_was(drive: Driver) -> None:
    """Case S8: its body, its number and its place are the first ones; another session has a list of
    its own."""
    first = accepted(await drive.submit("m1", body="first"))
    await drive.submit("m2")
    other = drive.neighbour()
    await other.submit("m1", body="another session's")
    async with drive.unchanged():
        again = await drive.submit("m1", body="second")
        assert again[:3] == ["DUPLICATE", first["n"], first["seq"]]
    producer = drive.stores.producer
    waiting = [(one.n, one.submission_id, one.body) for one in await producer.inbox(SESSION)]
    assert waiting == [(1, "m1", b"first"), (2, "m2", b"body of m2")]
    theirs = [(one.n, one.submission_id) for one in await producer.inbox(other.session)]
    assert theirs == [(1, "m1")]


async def test_a_delivery_that_comes_twice_is_settled_once(drive: Driver) -> None:
    """Case S22: its id is made of what it delivers."""
    wake = "process:p1:event:7:wake"
    await drive.submit(wake)
    async with drive.unchanged():
        assert (await drive.submit(wake))[0] == "DUPLICATE"
    lease = await drive.hold()
    await drive.commit(lease, "start", take=(1,))
    await drive.finish(lease)
    assert (await drive.work(), await drive.bodies("inbox")) == ({}, {})
    async with drive.unchanged():
        assert (await drive.submit(wake))[5] == "completed"


async def test_in_mid_turn_one_commit_takes_messages_and_answers(drive: Driver) -> None:
    """Case S10: both belong to the turn from then on, and to no other grant."""
    lease = await drive.run("m1")
    await drive.commit(lease, waits=(NewWait("w1", "approval"),))
    await drive.submit("s1", policy="steer")
    await drive.answer("w1", "a1")
    both = {"take": (2,), "consume": (("w1", 3),)}
    assert committed(await drive.commit(lease, "take", **both))["waiting"] == "0"
    assert await holders(drive) == {"1": "t_1", "2": "t_1"}
    assert await ending(drive, "a1") == "completed"
    async with drive.unchanged():
        assert await drive.commit(lease, "take", take=(2,)) == ["INPUT", []]
        assert await drive.commit(lease, "answer", consume=(("w1", 3),)) == ["INPUT", []]


async def test_what_a_turn_has_given_back_can_be_cancelled_again(drive: Driver) -> None:
    """Case S12: while the turn held it, a cancel was told so and changed nothing; it was not among
    what waits, and was in the inbox all the while."""
    await drive.submit("m1")
    await drive.submit("m2")
    assert await drive.cancel("m2", "c1") == ["CANCELLED"]
    assert await ending(drive, "m2") == "cancelled"
    lease = await drive.hold()
    await drive.commit(lease, "start", take=(1,))
    async with drive.unchanged():
        assert await drive.cancel("m1", "c2") == ["RUNNING", "t_1", "held"]
    work = await drive.stores.worker.read_work(SESSION)
    assert work.open_inputs(await drive.now()) == ()
    assert [one.n for one in await drive.stores.producer.inbox(SESSION)] == [1]
    await drive.finish(lease, end="requeue")
    work = await drive.stores.worker.read_work(SESSION)
    assert [one.n for one in work.open_inputs(await drive.now())] == [1]
    assert await drive.cancel("m1", "c3") == ["CANCELLED"]
    assert await drive.bodies("inbox") == {}


async def test_a_turn_takes_what_it_names_behind_what_it_leaves(drive: Driver) -> None:
    """Case S13: an earlier input is left waiting, what is not due cannot be named. Difference: no
    input refuses company; which are joined is decided by who takes them."""
    for id in ("m1", "m2", "m3"):
        await drive.submit(id)
    await drive.submit("later", due_ms=await drive.now() + FAR_FUTURE_MS)
    lease = await drive.hold()
    async with drive.unchanged():
        assert await drive.commit(lease, "start", take=(2, 4)) == ["INPUT", ["1", "2", "3"]]
    committed(await drive.commit(lease, "start", take=(2, 3)))
    assert await holders(drive) == {"1": "", "2": "t_1", "3": "t_1", "4": ""}
    await drive.finish(lease)
    assert [await ending(drive, id) for id in ("m1", "m2", "m3")] == ["", "completed", "completed"]


async def test_other_operations_keep_their_place(drive: Driver) -> None:
    """Case S14: the store gives every operation the next number, and an answer or a control is no
    operation that could be taken. Difference: it does not look into an operation; that one of them
    is taken at a time, in order, is the worker's rule."""
    await drive.submit("m1")
    await drive.submit("set_model")
    lease = await drive.hold()
    await drive.commit(lease, "start", take=(1,), waits=(NewWait("w1", "approval"),))
    await drive.answer("w1", "a1")
    await drive.interrupt("i1")
    async with drive.unchanged():
        assert await drive.commit(lease, "take", take=(3,)) == ["INPUT", ["2"]]
    assert sorted(await drive.work()) == ["1", "2", "3", "w:w1"]
    await drive.finish(lease, end="aborted")
    assert await holders(drive) == {"2": ""}


async def test_a_message_for_later_blocks_nothing_for_now(drive: Driver) -> None:
    """Case S15: what came behind it is taken by the running turn; after the turn gave back what it
    held, the next one holds it, and the end of the turn before settles nothing. Difference: the
    number of an input never changes; what changes is the turn that holds it, and its fence."""
    lease = await drive.run("m1")
    await drive.submit("later", due_ms=await drive.now() + FAR_FUTURE_MS)
    await drive.submit("s1", policy="steer")
    committed(await drive.commit(lease, "take", take=(3,)))
    assert await holders(drive) == {"1": "t_1", "2": "", "3": "t_1"}
    old_end = await drive.commit_of("end", end="completed")
    await drive.finish(lease, end="requeue")
    again = await drive.hold(nonce="n2")
    committed(await drive.commit(again, "start", take=(1, 3)))
    assert await holders(drive) == {"1": "t_2", "2": "", "3": "t_2"}
    async with drive.unchanged():
        stale = await drive.commit(again, "end", end="completed", turn=old_end.turn)
        assert stale == ["CONFLICT", "4", "t_2"]
        assert await drive.commit(lease, "end", end="completed") == ["LOST", "2"]


@pytest.mark.parametrize("how", ["released", "lapsed"])
async def test_a_grant_goes_on_with_what_the_one_before_held(drive: Driver, how: str) -> None:
    """Case S16: under the same grant it cannot be taken twice; under the next one its turn is still
    open, nobody takes it anew, and the end by the earlier holder is refused."""
    lease = await drive.run("m1")
    async with drive.unchanged():
        assert await drive.commit(lease, "take", take=(1,)) == ["INPUT", []]
    successor = await passed_on(drive, how, lease)
    assert successor.fence == lease.fence + 1
    async with drive.unchanged():
        assert await drive.commit(lease, "end", end="completed") == ["LOST", "2"]
    await drive.finish(successor)
    assert await ending(drive, "m1") == "completed"


@pytest.mark.parametrize("how", ["released", "expired", "taken over"])
async def test_what_a_lost_holder_held_stays_with_its_turn(drive: Driver, how: str) -> None:
    """Case S17: lists show it with its turn, and its turn is ready. Difference: a turn outlives its
    lease, so what it holds is not free for others in between, and a cancel is told which turn to
    interrupt."""
    lease = await drive.run("m1")
    await drive.submit("m2")
    match how:
        case "released":
            await drive.give_up(lease)
        case "expired":
            await drive.expire()
            await drive.reap()
        case _:
            await passed_on(drive, "lapsed", lease)
    assert await holders(drive) == {"1": "t_1", "2": ""}
    assert await drive.status() == ("held" if how == "taken over" else "ready")
    async with drive.unchanged():
        assert (await drive.cancel("m1"))[:2] == ["RUNNING", "t_1"]
    assert await drive.cancel("m2", "c2") == ["CANCELLED"]


@pytest.mark.parametrize("policy", ["steer", "join", "answers"])
async def test_each_of_many_inputs_is_reached_one_at_a_time(drive: Driver, policy: str) -> None:
    """Case S18: 34 of them, under one lease, whatever is held already."""
    lease = await drive.run("m1")
    if policy == "answers":
        await drive.commit(lease, waits=tuple(NewWait(f"w{i}", "job", 1) for i in range(2, 36)))
        for i in range(2, 36):
            await drive.answer(f"w{i}", f"a{i}")
            committed(await drive.commit(lease, "answer", consume=((f"w{i}", i),)))
            assert await ending(drive, f"a{i}") == "completed"
        return
    for i in range(2, 36):
        await drive.submit(f"m{i}", policy=policy)
    for n in range(2, 36):
        committed(await drive.commit(lease, "take", take=(n,)))
    assert set((await holders(drive)).values()) == {"t_1"}
    await drive.finish(lease)
    assert (await drive.work(), await drive.bodies("inbox")) == ({}, {})


async def test_the_first_two_of_three_are_the_first_two(drive: Driver) -> None:
    """Case S19: what is for the far future is skipped, and another session keeps its own."""
    await drive.submit("later", due_ms=await drive.now() + FAR_FUTURE_MS)
    for id in ("m1", "m2", "m3"):
        await drive.submit(id, policy="join")
    other = drive.neighbour()
    await other.submit("m1")
    theirs = await other.work()
    lease = await drive.hold()
    work = await drive.stores.worker.read_work(SESSION)
    due = [one.n for one in work.open_inputs(await drive.now())]
    assert due == [2, 3, 4]
    committed(await drive.commit(lease, "start", take=tuple(due[:2])))
    await drive.finish(lease)
    assert [await ending(drive, id) for id in ("m1", "m2", "m3")] == ["completed", "completed", ""]
    lease = await drive.hold(nonce="n2")
    committed(await drive.commit(lease, "start", take=(4,)))
    await drive.finish(lease)
    assert await ending(drive, "m3") == "completed"
    assert (await ending(drive, "later"), await other.work()) == ("", theirs)
    assert await drive.indexes() == {"timers"}


async def test_a_claim_tells_what_may_be_joined(drive: Driver) -> None:
    """Case S20: class and key in the order of acceptance, so whoever takes sees where a run of the
    same begins and ends. Difference: the store joins nothing itself."""
    for id, policy, key in (
        ("m1", "join", "a"),
        ("m2", "join", "a"),
        ("m3", "join", "b"),
        ("m4", "enqueue", ""),
        ("m5", "join", "a"),
    ):
        await drive.submit(id, policy=policy, key=key)
    await drive.hold()
    work = await drive.stores.worker.read_work(SESSION)
    assert [(one.submission_id, one.kind, one.key) for one in work.waiting] == [
        ("m1", "join", "a"),
        ("m2", "join", "a"),
        ("m3", "join", "b"),
        ("m4", "turn", ""),
        ("m5", "join", "a"),
    ]


async def test_a_used_id_stays_what_it_was_until_it_is_forgotten(drive: Driver) -> None:
    """Case S24: waiting, cancelled or completed; other content is refused with the time of the
    first; what has not ended is never forgotten. Difference: one that was forgotten because it
    ended longer ago than the window is new again."""
    await drive.submit("cancelled")
    await drive.cancel("cancelled", "c1")
    await drive.finish(await drive.run("completed"))
    await drive.submit("waiting")
    async with drive.unchanged():
        for id, how in (("cancelled", "cancelled"), ("completed", "completed"), ("waiting", "")):
            assert (await drive.submit(id))[0::5] == ["DUPLICATE", how]
            mismatch = await drive.submit(id, digest="other")
            receipt = await drive.receipt(id) or {}
            assert mismatch[:2] == ["MISMATCH", receipt["accepted"]]
        assert await drive.cancel("cancelled", "c1") == ["CANCELLED"]
        assert await drive.cancel("cancelled", "c2") == ["ENDED", "cancelled", ""]
        assert await drive.cancel("completed", "c2") == ["ENDED", "completed", "t_1"]
        assert await drive.cancel("never", "c2") == ["UNKNOWN"]
    assert await drive.purge(window_ms=-1) == ["KEPT", "3"]
    assert await drive.receipt("cancelled") is await drive.receipt("completed") is None
    assert (await drive.submit("waiting"))[0] == "DUPLICATE"


async def test_several_are_cancelled_one_after_the_other(drive: Driver) -> None:
    """Case S25: in the order of asking. Difference: each has a request of its own; there is no
    cancel of everything behind one, because what lies behind is read first and then named."""
    lease = await drive.run("m1")
    await drive.submit("m2")
    await drive.submit("m3")
    asked = ("m3", "m1", "m3", "m2", "m9")
    answers = [await drive.cancel(id, f"c{i}") for i, id in enumerate(asked)]
    assert answers == [
        ["CANCELLED"],
        ["RUNNING", "t_1", "held"],
        ["ENDED", "cancelled", ""],
        ["CANCELLED"],
        ["UNKNOWN"],
    ]
    await drive.finish(lease)
    cancelled = [e["sub"] for e in await drive.journal() if e["type"] == "submission_cancelled"]
    assert cancelled == ["m3", "m2"]


async def test_inputs_taken_together_end_or_come_back_together(drive: Driver) -> None:
    """Case S26: a stale end is refused and leaves the live turn its inputs."""
    lease = await drive.run("m1", "m2")
    async with drive.unchanged():
        assert await drive.cancel("m2") == ["RUNNING", "t_1", "held"]
    await drive.finish(lease, end="requeue")
    assert await holders(drive) == {"1": "", "2": ""}
    again = await drive.hold(incarnation="w2:bb", nonce="n2")
    committed(await drive.commit(again, "start", take=(1, 2)))
    async with drive.unchanged():
        assert await drive.commit(lease, "end", end="completed") == ["LOST", "2"]
    assert await holders(drive) == {"1": "t_2", "2": "t_2"}
    await drive.finish(again, next="hold")
    async with drive.unchanged():
        assert await drive.commit(again, "start", take=(1, 2)) == ["INPUT", []]


async def test_what_a_turn_did_not_take_waits_for_the_next_one(drive: Driver) -> None:
    """Case S27: also when it was interrupted; what was cancelled stays away. Difference: a message
    to the running turn names no turn and no point of it, so nothing has to be rewritten when the
    turn ends without it."""
    lease = await drive.run("m1")
    await drive.submit("s1", policy="steer")
    await drive.submit("s2", policy="steer")
    await drive.cancel("s1")
    await drive.interrupt("i1")
    assert (await drive.finish(lease, end="aborted"))["status"] == "ready"
    assert await holders(drive) == {"3": ""}
    assert await ending(drive, "s1") == "cancelled"
    lease = await drive.hold(nonce="n2")
    committed(await drive.commit(lease, "start", take=(3,)))
    await drive.finish(lease)
    assert (await ending(drive, "s2"), await drive.status()) == ("completed", "idle")


async def test_what_was_given_back_together_is_taken_without_what_came_since(
    drive: Driver,
) -> None:
    """Case S36: a part of it is refused with all the numbers; giving it back once more keeps it
    together. Difference: the store does not insist that it is taken before anything else; the
    order is the worker's."""
    lease = await drive.run("m1", "m2", "m3")
    await drive.submit("m4", policy="join")
    await drive.finish(lease, end="requeue")
    for round in (2, 3):
        lease = await drive.hold(nonce=f"n{round}")
        for part in ((1,), (2, 3), (1, 2, 4)):
            async with drive.unchanged():
                refused = await drive.commit(lease, "start", take=part)
                assert refused == ["INPUT", ["1", "2", "3", "4"]]
        committed(await drive.commit(lease, "start", take=(1, 2, 3)))
        await drive.finish(lease, end="requeue")
    lease = await drive.hold(nonce="n4")
    committed(await drive.commit(lease, "start", take=(4,)))
    assert await holders(drive) == {"1": "", "2": "", "3": "", "4": "t_4"}

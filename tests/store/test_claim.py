"""`claim`: grants what is ready, one fence at a time, and finds its own grants again."""

from __future__ import annotations

import pytest

from changeover_shared._store import requests
from changeover_shared._store.records import Create
from changeover_shared._words import GiveUp
from tests.support.driving import LATER_MS, ROUTE, SESSION, TTL_MS, Driver, fields


async def test_a_grant_carries_everything_that_its_holder_needs(drive: Driver) -> None:
    await drive.submit("m1")
    await drive.submit("m2")
    (answer,) = await drive.claim()
    word, fence, remaining, lapsed, head, work, checkpoint, inbox = answer
    assert (word, fence, remaining, lapsed, checkpoint) == ("GRANTED", "1", str(TTL_MS), "", "")
    assert (fields(head)["status"], fields(head)["fence"]) == ("held", "1")
    assert sorted(fields(work)) == ["1", "2", "_"]
    assert [entry for entry, _ in inbox] == ["1-0", "2-0"]
    assert await drive.indexes() == {"leases"}
    assert await drive.redis("HGET", drive.shared("owners"), SESSION) == "1|w1:aa|nonce-1"


async def test_each_grant_raises_the_fence_by_one(drive: Driver) -> None:
    await drive.submit("m1")
    for fence in (1, 2, 3):
        lease = await drive.hold(nonce=f"n{fence}")
        assert lease.fence == fence
        await drive.give_up(lease, GiveUp.HAND_OFF)


async def test_a_repeat_finds_its_own_grant_with_the_time_that_is_left(drive: Driver) -> None:
    """Holes 2 and 21, answer (b)."""
    await drive.submit("m1")
    (first,) = await drive.claim()
    await drive.expire(await drive.now() + 5_000)
    before = await drive.stores.dump()
    (repeat,) = await drive.claim()
    first[4], repeat[4] = fields(first[4]), fields(repeat[4])
    assert repeat == first
    after = await drive.stores.dump()
    assert int(float(after.pop(drive.shared("leases"))[1])) > await drive.now() + 5_000
    before.pop(drive.shared("leases"))
    assert after == before


async def test_a_repeat_tells_of_the_holder_before_like_the_first(drive: Driver) -> None:
    old = await drive.run("m1")
    await drive.expire()
    await drive.reap()
    (first,) = await drive.claim(incarnation="w2:bb", nonce="n2")
    (repeat,) = await drive.claim(incarnation="w2:bb", nonce="n2")
    assert first[3] == repeat[3] == old.token
    assert first[:2] == repeat[:2]
    assert (await drive.kinds()).count("worker_changed") == 1


async def test_a_live_lease_is_never_taken(drive: Driver) -> None:
    """Hole 16: whatever index names it."""
    await drive.submit("m1")
    await drive.hold()
    await drive.redis("ZADD", drive.shared("ready"), 0, SESSION)
    async with drive.unchanged():
        (answer,) = await drive.claim(incarnation="w2:bb", nonce="n2")
        assert answer[0] == "BUSY"
        assert 0 < int(answer[1]) <= TTL_MS
        (twin,) = await drive.claim(incarnation="w1:aa", nonce="n2")
        assert twin[0] == "BUSY"


async def test_an_expired_lease_is_taken_only_after_reap(drive: Driver) -> None:
    """F2: claim takes from `ready` only."""
    await drive.run("m1")
    await drive.expire()
    async with drive.unchanged():
        assert await drive.claim(incarnation="w2:bb", nonce="n2") == [["NONE"]]
    await drive.reap()
    assert (await drive.claim(incarnation="w2:bb", nonce="n2"))[0][:2] == ["GRANTED", "2"]


async def test_a_nonce_is_used_once(drive: Driver) -> None:
    """Hole 2: a late copy of an old claim grants nothing."""
    await drive.submit("m1")
    lease = await drive.hold(nonce="n1")
    await drive.give_up(lease, GiveUp.HAND_OFF)
    async with drive.unchanged():
        assert await drive.claim(nonce="n1") == [["USED"]]
    assert (await drive.claim(nonce="n2"))[0][0] == "GRANTED"


async def test_a_nonce_of_an_expired_grant_is_used_as_well(drive: Driver) -> None:
    await drive.run("m1", nonce="n1")
    await drive.expire()
    async with drive.unchanged():
        assert await drive.claim(nonce="n1") == [["USED"]]


async def test_a_repeat_that_finds_the_session_free_again_is_granted_a_fence_of_its_own(
    drive: Driver,
) -> None:
    """Hole 2: the fence whose reply was lost is nobody's; who asks has the newest lease."""
    await drive.run("m1", nonce="n1")
    for nonce, fence in (("n2", "2"), ("n1", "3")):
        await drive.expire()
        await drive.reap()
        (answer,) = await drive.claim(nonce=nonce)
        assert [str(value) for value in answer[:2]] == ["GRANTED", fence]


async def test_a_late_claim_grants_nothing(drive: Driver) -> None:
    """Hole 2: not-after."""
    await drive.submit("m1")
    request = requests.claim(
        drive.partition, ROUTE, [SESSION], incarnation="w1:aa", nonce="n", ttl_ms=TTL_MS,
        max_step_ms=1, solo=False, max_attempts=5, not_after_ms=await drive.now() - 1,
    )  # fmt: skip
    async with drive.unchanged():
        assert await drive.call(request) == ["OK", [["LATE"]]]


async def test_a_late_repeat_still_finds_its_own_grant(drive: Driver) -> None:
    """Else a reply that was lost for longer than not-after would leave an orphan."""
    await drive.submit("m1")
    ((word, fence, *_),) = await drive.claim(nonce="n1")
    late = requests.claim(
        drive.partition, ROUTE, [SESSION], incarnation="w1:aa", nonce="n1", ttl_ms=TTL_MS,
        max_step_ms=1, solo=False, max_attempts=5, not_after_ms=await drive.now() - 1,
    )  # fmt: skip
    _, ((again, same, *_),) = await drive.call(late)
    assert (word, again, same) == ("GRANTED", "GRANTED", fence)
    assert (await drive.head())["attempts"] == "1"


async def test_an_unknown_session_is_not_granted_and_its_entry_leaves_the_index(
    drive: Driver,
) -> None:
    await drive.submit("m1")
    ghost = drive.neighbour("ghost").session
    await drive.redis("ZADD", drive.shared("ready"), 0, ghost)
    assert await drive.claim(ghost) == [["NONE"]]
    assert await drive.order() == [SESSION]


@pytest.mark.parametrize("state", ["deleted", "closed", "quarantined", "idle", "parked"])
async def test_what_is_not_ready_is_not_granted_and_its_entry_is_repaired(
    drive: Driver, state: str
) -> None:
    match state:
        case "deleted":
            await drive.submit("m1")
            await drive.wipe_out()
        case "closed":
            await drive.close(await drive.run("m1"))
        case "quarantined":
            await drive.submit("m1")
            await drive.quarantine()
        case "idle":
            await drive.finish(await drive.run("m1"))
        case "parked":
            await drive.park("w1")
    right = await drive.stores.dump()
    await drive.redis("ZADD", drive.shared("ready"), 0, SESSION)
    assert await drive.claim(nonce="n2") == [["NONE"]]
    if drive.shared("ready") in right:
        assert await drive.stores.dump() == right
    assert await drive.order() == []
    assert await drive.status() == state


async def test_a_session_of_another_route_is_not_granted(drive: Driver) -> None:
    """Holes 37 and 39."""
    await drive.submit("m1")
    elsewhere = drive.of(SESSION, "other@1")
    await drive.redis("ZADD", elsewhere.shared("ready"), 0, SESSION)
    assert await elsewhere.claim() == [["NONE"]]
    assert await elsewhere.order() == []
    assert await drive.order() == [SESSION]


async def test_too_many_attempts_quarantine_with_an_event(drive: Driver) -> None:
    """Hole 17: a poison session stops, visibly."""
    await drive.run("m1")
    await drive.expire()
    await drive.reap()
    await drive.set_head(attempts=5)
    why = '{"attempts":5,"worker":"w1:aa"}'
    assert await drive.claim(nonce="n2", solo=True) == [["QUARANTINED", why]]
    event = (await drive.journal())[-1]
    assert (event["type"], event["turn"], event["body"]) == ("session_quarantined", "t_1", why)
    head = await drive.head()
    assert (head["status"], head["quarantine_no"], head["turn"]) == ("quarantined", "1", "t_1")
    assert await drive.indexes() == {"quarantine"}
    async with drive.unchanged():
        assert await drive.claim(nonce="n2", solo=True) == [["NONE"]]


async def test_a_suspect_is_granted_only_to_a_process_that_holds_nothing_else(
    drive: Driver,
) -> None:
    """Hole 19: the blast radius of a session that kills its workers."""
    await drive.submit("m1")
    await drive.set_head(attempts=3)
    assert await drive.claim() == [["SUSPECT"]]
    assert await drive.indexes() == {"solo"}
    assert (await drive.peek())[3] == [["0"]]
    assert (await drive.peek(solo=True))[3] == [["1", SESSION]]
    async with drive.unchanged():
        assert await drive.claim() == [["SUSPECT"]]
    assert (await drive.claim(solo=True))[0][0] == "GRANTED"


async def test_attempts_grow_with_each_grant_until_there_is_progress(drive: Driver) -> None:
    """Holes 17 and 18."""
    await drive.submit("m1")
    lease = await drive.hold()
    assert (await drive.head())["attempts"] == "1"
    await drive.expire()
    await drive.reap()
    lease = await drive.hold(incarnation="w2:bb", nonce="n2")
    assert (await drive.head())["attempts"] == "2"
    await drive.commit(lease, "start", take=(1,))
    assert (await drive.head())["attempts"] == "2"
    await drive.commit(lease, "recover")
    assert (await drive.head())["attempts"] == "2"
    await drive.commit(lease, "step", progress=True)
    assert (await drive.head())["attempts"] == "0"


async def test_clean_hand_offs_never_make_a_session_suspect(drive: Driver) -> None:
    """Hole 18: five rolling restarts during one long call."""
    lease = await drive.run("m1", nonce="n0")
    for i in range(1, 7):
        await drive.give_up(lease, GiveUp.HAND_OFF)
        assert (await drive.head())["attempts"] == "0"
        lease = await drive.hold(nonce=f"n{i}")


@pytest.mark.parametrize(
    ("ended", "reason"),
    [("hand_off", "handed_off"), ("expired", "taken_over"), ("evicted", "evicted")],
)
async def test_a_grant_after_another_incarnation_writes_why(
    drive: Driver, ended: str, reason: str
) -> None:
    lease = await drive.run("m1", incarnation="w1:aa")
    if ended == "hand_off":
        await drive.give_up(lease, GiveUp.HAND_OFF)
    else:
        await (drive.expire() if ended == "expired" else drive.evict((SESSION, lease.token)))
        await drive.reap()
    await drive.hold(incarnation="w2:bb", nonce="n2")
    event = (await drive.journal())[-1]
    assert (event["type"], event["turn"], event["fence"]) == ("worker_changed", "t_1", "2")
    assert event["body"] == (f'{{"reason":"{reason}","previous":"w1:aa","current":"w2:bb"}}')


async def test_neither_a_first_grant_nor_one_to_the_same_incarnation_writes_an_event(
    drive: Driver,
) -> None:
    lease = await drive.run("m1")
    await drive.give_up(lease, GiveUp.HAND_OFF)
    await drive.hold(nonce="n2")
    assert "worker_changed" not in await drive.kinds()


async def test_a_clean_release_leaves_nobody_before(drive: Driver) -> None:
    lease = await drive.run("m1", incarnation="w0:00", nonce="n0")
    await drive.give_up(lease, GiveUp.HAND_OFF)
    await drive.finish(await drive.hold(incarnation="w1:aa", nonce="n1"))
    await drive.submit("m2")
    (answer,) = await drive.claim(incarnation="w2:bb", nonce="n2")
    assert answer[3] == ""
    assert (await drive.kinds()).count("worker_changed") == 1


async def test_a_grant_forgets_parking_and_batches_and_back_off(drive: Driver) -> None:
    await drive.park("w1")
    await drive.answer("w1")
    await drive.hold(nonce="n2")
    head = await drive.head()
    assert "parked" not in head
    assert head["batch"] == "0"


async def test_each_session_of_a_call_is_judged_on_its_own(drive: Driver) -> None:
    other = drive.neighbour("other")
    third = drive.neighbour("third")
    await drive.submit("m1")
    await other.submit("m1")
    await other.hold(incarnation="w9:zz", nonce="n9")
    await third.submit("m1")
    answers = await drive.claim(SESSION, other.session, third.session)
    assert [answer[0] for answer in answers] == ["GRANTED", "BUSY", "GRANTED"]


async def test_a_claim_carries_no_more_than_64_kib(drive: Driver) -> None:
    """Hole 58: the oldest bodies that fit, and no larger checkpoint."""
    await drive.submit("m1", body="a" * 30_000)
    await drive.submit("m2", body="b" * 30_000)
    await drive.submit("m3", body="c" * 30_000)
    (answer,) = await drive.claim()
    assert [entry for entry, _ in answer[7]] == ["1-0", "2-0"]
    lease = await drive.holder()
    await drive.commit(lease, "start", take=(1,), checkpoint="s" * 20_000)
    (answer,) = await drive.claim()
    assert (len(answer[6]), [entry for entry, _ in answer[7]]) == (20_000, ["1-0"])
    await drive.commit(lease, "step", checkpoint="s" * 65_537)
    (answer,) = await drive.claim()
    assert (answer[6], fields(answer[4])["rev"]) == ("", "2")


async def test_a_claim_carries_at_most_sixteen_bodies(drive: Driver) -> None:
    for i in range(20):
        await drive.submit(f"m{i}", body="x")
    (answer,) = await drive.claim()
    assert len(answer[7]) == 16


# The ready order: answer (d)


async def claim_order(drive: Driver, sessions: list[Driver]) -> list[str]:
    """Grant one session after the other, in the order of the index."""
    names = {one.session: one for one in sessions}
    order = []
    while ready := await drive.order():
        order.append(ready[0])
        await names[ready[0]].hold(nonce=f"n{len(order)}")
    return order


async def test_tenants_take_turns_however_many_sessions_each_has(drive: Driver) -> None:
    """Holes 46 and 47: a flood of one tenant does not keep the others waiting."""
    flood = [drive.neighbour(f"flood{i}") for i in range(4)]
    small = [drive.neighbour(f"small{i}") for i in range(2)]
    for one in flood:
        await one.submit("m1", create=Create(ROUTE, "assistant", "flood"))
    for one in small:
        await one.submit("m1", create=Create(ROUTE, "assistant", "small"))
    order = await claim_order(drive, [*flood, *small])
    tenants = [name.split(":")[0].rstrip("0123456789") for name in order]
    assert sorted(tenants[:4]) == ["flood", "flood", "small", "small"]
    assert tenants[4:] == ["flood", "flood"]


async def test_the_finish_of_a_tenant_moves_by_one_cost_and_virtual_time_follows(
    drive: Driver,
) -> None:
    sessions = [drive.neighbour(f"s{i}") for i in range(3)]
    for one in sessions:
        await one.submit("m1", create=Create(ROUTE, "assistant", "acme"))
    assert [await one.score("ready") for one in sessions] == [0, 1000, 2000]
    vt = fields(await drive.redis("HGETALL", drive.shared("vt")))
    assert vt == {f"F:{ROUTE}:acme": "3000"}
    for i, one in enumerate(sessions):
        await one.hold(nonce=f"n{i}")
    vt = fields(await drive.redis("HGETALL", drive.shared("vt")))
    assert vt == {f"F:{ROUTE}:acme": "3000", f"V:{ROUTE}": "2000"}
    late = drive.neighbour("late")
    await late.submit("m1", create=Create(ROUTE, "assistant", "new"))
    assert await late.score("ready") == 2000


async def test_finishes_that_virtual_time_has_passed_are_forgotten(drive: Driver) -> None:
    await drive.submit("m1", create=Create(ROUTE, "assistant", "acme"))
    await drive.redis("HSET", drive.shared("vt"), f"F:{ROUTE}:gone", 0, "F:other@1:gone", 0)
    await drive.hold()
    vt = fields(await drive.redis("HGETALL", drive.shared("vt")))
    assert vt == {f"F:{ROUTE}:acme": "1000", "F:other@1:gone": "0", f"V:{ROUTE}": "0"}


async def test_a_priority_is_a_head_start_of_eight_grants_not_a_class(drive: Driver) -> None:
    """Hole 46."""
    sessions = [drive.neighbour(f"s{i}") for i in range(10)]
    for one in sessions:
        await one.submit("m1", create=Create(ROUTE, "assistant", "acme"))
    urgent = drive.neighbour("urgent")
    await urgent.submit("m1", priority=1, create=Create(ROUTE, "assistant", "acme"))
    assert await urgent.score("ready") == 10_000 - 8_000
    order = await claim_order(drive, [*sessions, urgent])
    assert order.index(urgent.session) in (2, 3)


async def test_a_low_priority_waits_eight_grants_and_no_longer(drive: Driver) -> None:
    await drive.submit("m1", priority=-1, create=Create(ROUTE, "assistant", "acme"))
    assert await drive.score("ready") == 8_000


async def test_a_takeover_keeps_its_place_and_is_not_charged_again(drive: Driver) -> None:
    lease = await drive.run("m1")
    await drive.commit(lease, "step", progress=True)
    for i in range(3):
        await drive.neighbour(f"s{i}").submit("m1")
    await drive.expire()
    await drive.reap()
    assert (await drive.order())[0] == SESSION
    assert await drive.score("ready") == 0


async def test_the_first_hand_off_keeps_its_place_and_a_second_without_progress_does_not(
    drive: Driver,
) -> None:
    """Hole 45: hand-offs cannot take the front for ever."""
    lease = await drive.run("m1")
    for i in range(3):
        await drive.neighbour(f"s{i}").submit("m1")
    await drive.give_up(lease, GiveUp.HAND_OFF)
    assert (await drive.order())[0] == SESSION
    await drive.give_up(await drive.hold(nonce="n2"), GiveUp.HAND_OFF)
    assert (await drive.order())[-1] == SESSION
    lease = await drive.hold(nonce="n3")
    place = (await drive.head())["tag"]
    await drive.commit(lease, "step", progress=True)
    await drive.give_up(lease, GiveUp.HAND_OFF)
    assert (await drive.head())["tag"] == place


async def test_a_session_that_released_is_charged_as_new(drive: Driver) -> None:
    await drive.finish(await drive.run("m1"))
    await drive.submit("m2")
    assert await drive.score("ready") == 1000


async def test_a_scheduled_input_does_not_make_a_held_session_free(drive: Driver) -> None:
    """Hole 16."""
    await drive.run("m1")
    await drive.submit("m2", due_ms=await drive.now() + LATER_MS)
    assert await drive.indexes() == {"leases"}

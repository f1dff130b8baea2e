"""`reap`: what ran out or is due goes where it belongs, whoever sees it, whatever its route."""

from __future__ import annotations

import pytest

from changeover_shared._store.records import NewWait
from tests.support.driving import LATER_MS, SESSION, TTL_MS, Driver, committed


async def test_an_expired_session_with_an_open_turn_becomes_ready(drive: Driver) -> None:
    lease = await drive.run("m1")
    await drive.expire()
    assert await drive.reap() == [["PLACED", "ready"]]
    head = await drive.head()
    assert (head["lapsed"], head["lapsed_why"], head["attempts"]) == (
        lease.token,
        "taken_over",
        "1",
    )
    assert await drive.indexes() == {"ready"}
    for table in ("owners", "stalls", "alerts"):
        assert await drive.redis("HEXISTS", drive.shared(table), SESSION) == 0
    assert (await drive.work())["1"][2] == "t_1"


async def test_an_evicted_lease_is_remembered_as_evicted(drive: Driver) -> None:
    lease = await drive.run("m1")
    await drive.evict((SESSION, lease.token))
    await drive.reap()
    assert (await drive.head())["lapsed_why"] == "evicted"


async def test_a_repeat_changes_nothing_more(drive: Driver) -> None:
    await drive.run("m1")
    await drive.expire()
    first = await drive.reap()
    async with drive.unchanged():
        assert await drive.reap() == first


async def test_an_expired_session_without_work_becomes_idle(drive: Driver) -> None:
    await drive.submit("m1")
    await drive.hold()
    await drive.cancel("m1")
    await drive.expire()
    assert await drive.reap() == [["PLACED", "idle"]]
    assert await drive.indexes() == set()


async def test_an_expired_session_with_only_later_work_goes_to_the_timers(drive: Driver) -> None:
    """Hole 16."""
    lease = await drive.run("m1")
    due = await drive.now() + LATER_MS
    await drive.submit("m2", due_ms=due)
    await drive.finish(lease, next="hold")
    await drive.expire()
    assert await drive.reap() == [["PLACED", "idle"]]
    assert (await drive.indexes(), await drive.score("timers")) == ({"timers"}, due)


async def test_a_due_message_makes_its_session_ready(drive: Driver) -> None:
    await drive.submit("m1", due_ms=await drive.now() + LATER_MS)
    await drive.make_due(1)
    assert await drive.reap() == [["PLACED", "ready"]]
    assert await drive.indexes() == {"ready"}


async def test_a_passed_deadline_makes_its_parked_session_ready(drive: Driver) -> None:
    await drive.park("w1", "job", await drive.now() + LATER_MS)
    await drive.redis("HSET", drive.key("work"), "w:w1", "job|1||0")
    assert await drive.reap() == [["PLACED", "ready"]]
    assert (await drive.claim(nonce="n2"))[0][0] == "GRANTED"


async def test_a_parked_session_that_is_not_due_stays(drive: Driver) -> None:
    await drive.park("w1", "job", await drive.now() + LATER_MS)
    async with drive.unchanged():
        assert await drive.reap() == [["PLACED", "parked"]]


async def test_a_live_lease_is_left_alone(drive: Driver) -> None:
    """Hole 16: also when another index names the session."""
    await drive.run("m1")
    await drive.redis("ZADD", drive.shared("timers"), 1, SESSION)
    async with drive.unchanged():
        assert await drive.reap() == [["BUSY", "held"]]


async def test_a_lease_beyond_the_longest_one_is_cut(drive: Driver) -> None:
    """Hole 49: a clock that went back keeps no lease alive for hours."""
    await drive.run("m1")
    await drive.expire(await drive.now() + 1_000 * TTL_MS)
    assert (await drive.reap())[0][0] == "BUSY"
    assert await drive.score("leases") <= await drive.now() + 10 * TTL_MS


async def test_sessions_go_into_the_ready_set_of_their_own_route(drive: Driver) -> None:
    """Holes 37 and 61: entries leave the shared indexes whoever serves the route."""
    lease = await drive.run("m1")
    await drive.expire()
    async with drive.unchanged():
        assert await drive.reap(route="elsewhere@1") == [["ROUTE", "held"]]
    assert (await drive.reap())[0] == ["PLACED", "ready"]
    assert lease.route == drive.route


async def test_a_suspect_goes_to_the_solo_set(drive: Driver) -> None:
    """Hole 19."""
    await drive.run("m1")
    await drive.set_head(attempts=3)
    await drive.expire()
    await drive.reap()
    assert await drive.indexes() == {"solo"}


@pytest.mark.parametrize("state", ["unknown", "closed", "quarantined"])
async def test_what_takes_no_part_leaves_the_indexes(drive: Driver, state: str) -> None:
    if state == "closed":
        await drive.close(await drive.run("m1"))
    elif state == "quarantined":
        await drive.submit("m1")
        await drive.quarantine()
    else:
        await drive.neighbour().submit("m1")
    before = await drive.stores.dump()
    await drive.redis("ZADD", drive.shared("timers"), 1, SESSION)
    await drive.redis("ZADD", drive.shared("leases"), 1, SESSION)
    assert (await drive.reap())[0][0] == "NONE"
    assert await drive.stores.dump() == before


async def test_a_ready_session_is_placed_again_where_it_is(drive: Driver) -> None:
    await drive.submit("m1")
    async with drive.unchanged():
        assert await drive.reap() == [["PLACED", "ready"]]


async def test_each_session_of_a_call_is_placed_on_its_own(drive: Driver) -> None:
    other = drive.neighbour()
    await drive.run("m1")
    await other.run("m1", nonce="n2")
    await drive.expire()
    assert await drive.reap(SESSION, other.session) == [["PLACED", "ready"], ["BUSY", "held"]]


async def test_an_answer_that_waits_survives_the_takeover_of_its_turn(drive: Driver) -> None:
    lease = await drive.run("m1")
    await drive.commit(lease, waits=(NewWait("w1", "client"),))
    await drive.answer("w1")
    await drive.expire()
    await drive.reap()
    lease = await drive.hold(incarnation="w2:bb", nonce="n2")
    reply = await drive.commit(lease, "answer", consume=(("w1", 2),))
    assert committed(reply)["held"] == "held"

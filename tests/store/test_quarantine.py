"""`quarantine`, `redrive`, `dead_letter`: an operator stops a session and lets it go on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from changeover_shared._store.records import NewWait
from tests.support.driving import LATER_MS, SESSION, Driver, committed

MINUTE_MS = 60_000


async def endings(drive: Driver, *ids: str) -> list[str]:
    return [(await drive.receipt(id) or {})["ending"] for id in ids]


# Stopping


async def test_a_holder_is_refused_from_then_on(drive: Driver) -> None:
    """And nobody else is granted it; what it had begun counts as after a takeover."""
    lease = await drive.run("m1")
    assert await drive.stop() == ["OK", "1", "quarantined"]
    assert await drive.indexes() == {"quarantine"}
    assert await drive.commit(lease) == ["GONE"]
    assert (await drive.renew(lease))[0][0] == "GONE"
    assert await drive.append(lease) == ["GONE"]
    assert await drive.claim(nonce="n2") == [["NONE"]]
    head = await drive.head()
    assert (head["turn"], head["lapsed"], head["lapsed_why"]) == ("t_1", lease.token, "evicted")
    assert await drive.kinds() == ["session_quarantined"]


async def test_stopping_a_held_session_costs_it_no_attempt(drive: Driver) -> None:
    await drive.submit("m1")
    await drive.set_head(attempts=2)
    await drive.hold(solo=True)
    await drive.stop()
    assert (await drive.head())["attempts"] == "2"


async def test_a_commit_that_came_first_stands_and_its_repeat_says_gone(drive: Driver) -> None:
    lease = await drive.run("m1")
    commit = await drive.commit_of("step", items=("one",))
    committed(await drive.committing(lease, commit))
    await drive.stop()
    assert (await drive.committing(lease, commit))[:2] == ["REPLAY", "gone"]
    assert await drive.bodies("transcript") == {1: "one"}


async def test_a_late_copy_of_a_stop_begins_no_second_quarantine(drive: Driver) -> None:
    await drive.submit("m1")
    await drive.stop()
    await drive.redrive()
    async with drive.unchanged():
        assert await drive.stop(number=1) == ["OK", "1", "ready"]
        assert await drive.stop(not_after=1) == ["LATE"]


async def test_the_number_of_a_quarantine_is_never_used_again(drive: Driver) -> None:
    """Hole 32: also not in the next life, so no late redrive ends a quarantine of that."""
    await drive.submit("m1")
    await drive.stop()
    await drive.delete()
    await drive.submit("m2")
    assert await drive.stop() == ["OK", "2", "quarantined"]
    async with drive.unchanged():
        assert await drive.redrive(number=1) == ["STALE", "2"]


async def test_why_it_was_stopped_is_kept_until_it_goes_on(drive: Driver) -> None:
    await drive.submit("m1")
    why = '{"attempts":0,"cause":"operator","error":"too loud"}'
    await drive.stop(detail=why)
    assert (await drive.head())["stopped"] == why
    assert [e["body"] for e in await drive.journal()] == [why]
    await drive.redrive()
    assert "stopped" not in await drive.head()


# Letting go on


async def test_a_redriven_session_has_all_its_attempts_and_goes_on_in_its_turn(
    drive: Driver,
) -> None:
    lease = await drive.run("m1")
    await drive.give_up(lease)
    await drive.quarantine()
    assert await drive.redrive() == ["OK", "ready", "1"]
    head = await drive.head()
    assert (head["turn"], head.get("attempts"), head.get("attempts0")) == ("t_1", None, None)
    assert await drive.indexes() == {"ready"}
    assert await drive.kinds() == ["session_quarantined", "session_redriven"]
    again = await drive.hold(nonce="n9")
    await drive.finish(again)
    assert await endings(drive, "m1") == ["completed"]


async def test_a_redriven_session_has_all_its_time_and_no_place_of_before(drive: Driver) -> None:
    """It is not stopped again at once for the time that it had lost, nor does it pass anybody who
    came while it was stopped."""
    await drive.submit("m1")
    await drive.set_head(lost_ms=20 * MINUTE_MS)
    limit = 15 * MINUTE_MS
    assert (await drive.claim(nonce="n1", no_progress_ms=limit))[0][0] == "QUARANTINED"
    other = drive.neighbour("other")
    await other.submit("m1")
    await other.hold(nonce="n2")
    await drive.redrive()
    head = await drive.head()
    assert ("lost_ms" in head, int(head["tag"]) > int((await other.head())["tag"])) == (False, True)
    assert (await drive.claim(nonce="n3", no_progress_ms=limit))[0][0] == "GRANTED"


async def test_a_repeat_of_a_redrive_changes_nothing(drive: Driver) -> None:
    await drive.submit("m1")
    await drive.quarantine()
    first = await drive.redrive()
    async with drive.unchanged():
        assert await drive.redrive() == first


async def test_a_late_redrive_does_not_end_the_next_quarantine(drive: Driver) -> None:
    await drive.submit("m1")
    await drive.quarantine()
    await drive.redrive()
    await drive.stop()
    async with drive.unchanged():
        assert await drive.redrive(number=1) == ["STALE", "2"]
        assert await drive.dead_letter(number=1) == ["STALE", "2"]


async def test_what_waits_for_people_waits_on(drive: Driver) -> None:
    await drive.park("w1")
    await drive.stop()
    assert await drive.answer("w1", "a1")
    await drive.redrive()
    assert await drive.status() == "ready"


async def test_an_interrupt_of_a_quarantined_turn_is_found_by_who_goes_on(drive: Driver) -> None:
    lease = await drive.run("m1")
    await drive.stop()
    assert (await drive.interrupt("i1"))[0] == "ACCEPTED"
    await drive.redrive()
    lease = await drive.hold(nonce="n2")
    assert (await drive.commit(lease, "end", end="completed", next="release"))[0] == "CONTROL"
    await drive.finish(lease, "aborted")
    assert await endings(drive, "m1", "i1") == ["aborted", "completed"]


# Giving up


async def test_the_input_of_the_open_turn_ends_it_and_the_next_one_is_run(drive: Driver) -> None:
    lease = await drive.run("m1")
    opened = (NewWait("w1", "approval"), NewWait("w2", "approval"))
    await drive.commit(lease, waits=opened)
    await drive.answer("w1", "a1")
    await drive.interrupt("i1")
    await drive.submit("m2")
    await drive.stop()
    assert await drive.redrive(1, record="the record") == ["OK", "ready", "1"]
    assert await endings(drive, "m1", "a1", "i1") == ["dead_lettered", "superseded", "completed"]
    assert (await drive.receipt("m1") or {})["turn"] == "t_1"
    head = await drive.head()
    assert {"turn", "ctl_turn", "ctl_sub", "parked"}.isdisjoint(head)
    assert [parts[4] for parts in (await drive.work()).values()] == ["m2"]
    assert await drive.bodies("turns") == {1: "the record"}
    assert (await drive.kinds())[-3:] == [
        "submission_dead_lettered", "submission_superseded", "session_redriven",
    ]  # fmt: skip
    lease = await drive.hold(nonce="n2")
    assert (await drive.commit(lease, "start", take=(3,)))[0] == "OK"
    assert (await drive.head())["turn"] == "t_2"


async def test_inputs_that_one_turn_has_taken_are_given_up_together(drive: Driver) -> None:
    await drive.run("m1", "m2")
    await drive.stop()
    await drive.redrive(2)
    assert await endings(drive, "m1", "m2") == ["dead_lettered", "dead_lettered"]


async def test_a_waiting_input_is_given_up_alone(drive: Driver) -> None:
    await drive.run("m1")
    await drive.submit("m2")
    await drive.stop()
    assert await drive.redrive(2, record="unused") == ["OK", "ready", "1"]
    assert await endings(drive, "m1", "m2") == ["", "dead_lettered"]
    assert (await drive.head())["turn"] == "t_1"
    assert await drive.bodies("turns") == {}


async def test_what_is_not_there_cannot_be_given_up(drive: Driver) -> None:
    lease = await drive.run("m1")
    await drive.commit(lease, waits=(NewWait("w1", "approval"),))
    await drive.answer("w1", "a1")
    await drive.stop()
    async with drive.unchanged():
        assert await drive.redrive(9) == ["INPUT", ["1"]]
        assert await drive.redrive(2) == ["INPUT", ["1"]]


async def test_all_that_is_open_is_given_up_and_the_session_is_idle(drive: Driver) -> None:
    """Also what waits for its time; each ends exactly once."""
    lease = await drive.run("m1")
    await drive.commit(lease, waits=(NewWait("w1", "approval"),))
    await drive.answer("w1", "a1")
    await drive.submit("m2")
    await drive.submit("m3", due_ms=await drive.now() + LATER_MS)
    await drive.stop()
    first = await drive.dead_letter(record="the record")
    assert first == ["OK", "idle"]
    assert await endings(drive, "m1", "a1", "m2", "m3") == [
        "dead_lettered", "superseded", "dead_lettered", "dead_lettered",
    ]  # fmt: skip
    assert (await drive.work(), await drive.indexes()) == ({}, set())
    told = [e["sub"] for e in await drive.journal() if e["type"] == "submission_dead_lettered"]
    assert told == ["m1", "m2", "m3"]
    async with drive.unchanged():
        assert await drive.dead_letter() == first
    assert (await drive.submit("m4"))[0] == "ACCEPTED"


async def test_what_comes_after_the_look_is_not_given_up(drive: Driver) -> None:
    """Nobody named it, and no event tells of it: the session runs it."""
    await drive.submit("m1")
    await drive.stop()
    await drive.submit("m2")
    first = await drive.dead_letter(last=1)
    assert first == ["OK", "ready"]
    assert await endings(drive, "m1", "m2") == ["dead_lettered", ""]
    async with drive.unchanged():
        assert await drive.dead_letter(last=1) == first
        assert await drive.dead_letter(last=2) == ["STALE", "1"]


# What is kept of how it failed


async def lost_grant(drive: Driver, number: int, why: str = "") -> None:
    lease = await drive.hold(incarnation=f"w{number}:aa", nonce=f"n{number}", solo=True)
    await drive.evict((SESSION, lease.token), why=why)
    await drive.reap()


async def test_the_last_worker_and_what_its_supervisor_saw_are_told(drive: Driver) -> None:
    await drive.submit("m1")
    for number in range(5):
        await lost_grant(drive, number, why='the "worker" exited with code 7')
    (answer,) = await drive.claim(nonce="last", solo=True)
    assert answer[0] == "QUARANTINED"
    assert json.loads(answer[1]) == {
        "attempts": 5, "worker": "w4:aa", "error": 'the "worker" exited with code 7',
    }  # fmt: skip
    assert (await drive.head())["stopped"] == answer[1]


async def test_what_was_seen_of_an_earlier_death_is_not_told_of_the_last(drive: Driver) -> None:
    await drive.submit("m1")
    for number in range(4):
        await lost_grant(drive, number, why="exited")
    await lost_grant(drive, 5)
    (answer,) = await drive.claim(nonce="last", solo=True)
    assert json.loads(answer[1]) == {"attempts": 5, "worker": "w5:aa"}


# Time without progress


async def lose_after(drive: Driver, span_ms: int, number: int = 1, **given: Any) -> None:
    """A grant that was lost `span_ms` after it was given."""
    await drive.hold(incarnation=f"w{number}:aa", nonce=f"n{number}", **given)
    now = await drive.now()
    await drive.set_head(began_ms=now - span_ms)
    await drive.expire(now - 1)
    await drive.reap()


async def test_grants_that_lose_too_much_time_quarantine(drive: Driver) -> None:
    """Whatever the attempts: a session that hangs is stopped after two of them."""
    await drive.submit("m1")
    await lose_after(drive, 8 * MINUTE_MS, 1)
    await lose_after(drive, 8 * MINUTE_MS, 2)
    (answer,) = await drive.claim(nonce="last", no_progress_ms=15 * MINUTE_MS)
    assert answer[0] == "QUARANTINED"
    assert json.loads(answer[1]) == {"attempts": 2, "cause": "time", "worker": "w2:aa"}
    assert await drive.status() == "quarantined"


@pytest.mark.parametrize("no_progress_ms", [20 * MINUTE_MS, 0], ids=["less", "never"])
async def test_less_time_is_granted_again(drive: Driver, no_progress_ms: int) -> None:
    await drive.submit("m1")
    await lose_after(drive, 8 * MINUTE_MS, 1)
    await lose_after(drive, 8 * MINUTE_MS, 2)
    (answer,) = await drive.claim(nonce="last", no_progress_ms=no_progress_ms)
    assert answer[0] == "GRANTED"


async def test_time_in_which_nobody_holds_it_does_not_count(drive: Driver) -> None:
    """A fleet that was down for an hour quarantines nothing."""
    await drive.submit("m1")
    await drive.hold()
    now = await drive.now()
    await drive.set_head(began_ms=now - 60 * MINUTE_MS)
    await drive.expire(now - 59 * MINUTE_MS)
    await drive.reap()
    assert int((await drive.head())["lost_ms"]) == MINUTE_MS
    assert (await drive.claim(nonce="n2", no_progress_ms=5 * MINUTE_MS))[0][0] == "GRANTED"


async def test_progress_and_clean_hand_offs_cost_no_time(drive: Driver) -> None:
    """Hole 18: a session that is handed from one to the next is no poison."""
    await drive.submit("m1")
    await lose_after(drive, 8 * MINUTE_MS)
    lease = await drive.hold(nonce="n2")
    await drive.set_head(began_ms=await drive.now() - 60 * MINUTE_MS)
    await drive.give_up(lease)
    assert int((await drive.head())["lost_ms"]) >= 8 * MINUTE_MS - 1
    lease = await drive.hold(nonce="n3")
    await drive.commit(lease, "start", take=(1,))
    assert int((await drive.head())["lost_ms"]) > 0
    await drive.commit(lease, "step", progress=True)
    assert "lost_ms" not in await drive.head()


async def test_a_step_that_may_take_longer_has_its_time(drive: Driver) -> None:
    lease = await drive.run("m1")
    given = {"progress": True, "max_step_ms": 60 * MINUTE_MS}
    await drive.commit(lease, "step", no_progress_ms=15 * MINUTE_MS, **given)
    now = await drive.now()
    await drive.set_head(began_ms=now - 40 * MINUTE_MS)
    await drive.expire(now - 1)
    await drive.reap()
    (answer,) = await drive.claim(nonce="n2", no_progress_ms=15 * MINUTE_MS)
    assert answer[0] == "GRANTED"


async def test_a_holder_that_commits_without_progress_is_not_renewed_for_ever(
    drive: Driver,
) -> None:
    lease = await drive.run("m1")
    now = await drive.now()
    await drive.set_head(began_ms=now - 14 * MINUTE_MS)
    committed(await drive.commit(lease, "recover", no_progress_ms=15 * MINUTE_MS))
    stall = int(await drive.redis("HGET", drive.shared("stalls"), SESSION))
    assert stall == now + MINUTE_MS
    committed(await drive.commit(lease, "step", progress=True, no_progress_ms=15 * MINUTE_MS))
    stall = int(await drive.redis("HGET", drive.shared("stalls"), SESSION))
    assert stall >= now + 10 * MINUTE_MS

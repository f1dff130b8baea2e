"""`commit`: everything that one step changes, together or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from changeover_shared._events import Event, TurnCompleted
from changeover_shared._store import requests
from changeover_shared._store.records import NewWait, OutboxRow
from changeover_shared._words import GiveUp
from tests.support.driving import LATER_MS, SESSION, TTL_MS, Driver, accepted, committed


async def test_a_start_opens_the_turn_and_takes_its_inputs(drive: Driver) -> None:
    await drive.submit("m1")
    await drive.submit("m2")
    lease = await drive.hold()
    started = Event(type="turn_started")
    reply = committed(await drive.commit(lease, "start", take=(1, 2), events=(started,)))
    assert reply == {
        "held": "held", "rev": "1", "first_seq": "1", "n": "2", "ctl_epoch": "0", "ctl_kind": "",
        "waiting": "0", "ready_count": "0", "status": "held",
    }  # fmt: skip
    head = await drive.head()
    assert (head["turn"], head["turns"], head["rev"], head["turn_seq"]) == ("t_1", "1", "1", "0")
    work = await drive.work()
    assert [work[n][2] for n in ("1", "2")] == ["t_1", "t_1"]
    assert await drive.bodies("checkpoint") == {1: "state after start"}
    assert sorted(await drive.bodies("inbox")) == [1, 2]


async def test_a_step_writes_items_events_and_state_together(drive: Driver) -> None:
    lease = await drive.run("m1")
    events = (Event(type="step_completed", turn_id="t_1", step_id="s1"), Event(type="x"))
    reply = committed(await drive.commit(lease, items=("one", "two"), events=events))
    assert (reply["rev"], reply["first_seq"]) == ("2", "1")
    assert await drive.bodies("transcript") == {1: "one", 2: "two"}
    journal = await drive.journal()
    assert [(e["seq"], e["type"], e["fence"], e["epoch"]) for e in journal] == [
        ("1", "step_completed", "1", "1"), ("2", "x", "1", "1"),
    ]  # fmt: skip
    assert (journal[0]["turn"], journal[0]["step"]) == ("t_1", "s1")
    assert (await drive.head())["transcript_n"] == "2"


async def test_a_repeat_is_answered_like_the_first_and_changes_nothing(drive: Driver) -> None:
    """Hole 5 and G3: also when something came in between."""
    lease = await drive.run("m1")
    commit = await drive.commit_of("step", items=("one",), events=(Event(type="x"),))
    request = requests.commit(drive.fleet.keys, lease, commit)
    first = await drive.call(request)
    await drive.submit("m2")
    async with drive.unchanged():
        assert await drive.call(request) == ["REPLAY", *first[1:]]


@pytest.mark.parametrize("gone", ["released", "expired", "evicted", "taken"])
async def test_a_repeat_tells_whether_the_lease_still_stands(drive: Driver, gone: str) -> None:
    """Hole 5: nobody is told that it holds what it does not hold."""
    lease = await drive.run("m1")
    commit = await drive.commit_of("step")
    request = requests.commit(drive.fleet.keys, lease, commit)
    assert committed(await drive.call(request))["held"] == "held"
    if gone == "released":
        await drive.give_up(lease, GiveUp.HAND_OFF)
    elif gone == "evicted":
        await drive.evict((SESSION, lease.token))
    else:
        await drive.expire()
    if gone == "taken":
        await drive.reap()
        await drive.hold(incarnation="w2:bb", nonce="n2")
    async with drive.unchanged():
        reply = committed(await drive.call(request))
    assert (reply["held"], reply["rev"]) == ("gone", "2")


async def test_the_repeat_of_a_releasing_commit_says_gone(drive: Driver) -> None:
    """Hole 5: the receipt comes before the lease, so the result is not lost."""
    lease = await drive.run("m1")
    commit = await drive.commit_of("end", end="completed", next="release", progress=True)
    request = requests.commit(drive.fleet.keys, lease, commit)
    first = await drive.call(request)
    assert committed(first)["held"] == "gone"
    async with drive.unchanged():
        assert await drive.call(request) == ["REPLAY", *first[1:]]


# The lease


async def test_a_write_without_a_lease_is_gone(drive: Driver) -> None:
    lease = await drive.run("m1")
    await drive.give_up(lease, GiveUp.HAND_OFF)
    async with drive.unchanged():
        assert await drive.commit(lease) == ["GONE"]


async def test_a_superseded_holder_is_told_the_fence_and_changes_nothing(drive: Driver) -> None:
    """G2."""
    lease = await drive.run("m1")
    await drive.expire()
    await drive.reap()
    await drive.hold(incarnation="w2:bb", nonce="n2")
    async with drive.unchanged():
        assert await drive.commit(lease) == ["LOST", "2"]


async def test_the_same_fence_granted_twice_is_two_leases(drive: Driver) -> None:
    """Hole 31: after a failover only the nonce tells them apart."""
    lease = await drive.run("m1")
    await drive.redis("HSET", drive.shared("owners"), SESSION, "1|w2:bb|other")
    async with drive.unchanged():
        assert await drive.commit(lease) == ["LOST", "1"]
        assert await drive.append(lease) == ["LOST", "1"]
        assert await drive.give_up(lease) == ["LOST", "1"]
        assert (await drive.renew(lease))[0][0] == "LOST"


async def test_an_expired_lease_writes_nothing_even_if_nobody_took_it(drive: Driver) -> None:
    """Hole 63: policy, asserted."""
    lease = await drive.run("m1")
    await drive.expire()
    async with drive.unchanged():
        assert await drive.commit(lease) == ["EXPIRED"]


async def test_a_deleted_session_is_told_so(drive: Driver) -> None:
    lease = await drive.run("m1")
    await drive.wipe_out()
    async with drive.unchanged():
        assert await drive.commit(lease, turn="t_1") == ["DELETED"]


# What the commit builds on


async def test_a_store_that_forgot_commits_says_rewound_to_its_live_holder(drive: Driver) -> None:
    """Hole 29: not the same as superseded."""
    lease = await drive.run("m1")
    async with drive.unchanged():
        assert await drive.commit(lease, rev=5) == ["REWOUND", "1"]


async def test_a_commit_on_an_old_revision_conflicts(drive: Driver) -> None:
    lease = await drive.run("m1")
    await drive.commit(lease)
    async with drive.unchanged():
        assert await drive.commit(lease, rev=1) == ["CONFLICT", "2", "t_1"]


@pytest.mark.parametrize(
    "given",
    [
        {"turn": "t_2"},
        {"turn": ""},
        {"kind": "start", "turn": "t_2", "take": (2,)},
    ],
)
async def test_a_commit_of_another_turn_conflicts(drive: Driver, given: dict[str, Any]) -> None:
    lease = await drive.run("m1")
    await drive.submit("m2")
    async with drive.unchanged():
        assert await drive.commit(lease, **given) == ["CONFLICT", "1", "t_1"]


async def test_a_turn_has_the_next_number(drive: Driver) -> None:
    await drive.submit("m1")
    lease = await drive.hold()
    async with drive.unchanged():
        assert await drive.commit(lease, "start", turn="t_2", take=(1,)) == ["CONFLICT", "0", ""]


async def test_nothing_ends_or_is_taken_without_a_turn(drive: Driver) -> None:
    """Else every waiting input would be settled with it."""
    await drive.submit("m1")
    lease = await drive.hold()
    async with drive.unchanged():
        assert await drive.commit(lease, "end", end="completed") == ["CONFLICT", "0", ""]
        assert await drive.commit(lease, "take", take=(1,)) == ["CONFLICT", "0", ""]


async def test_an_outbox_row_belongs_to_the_session(drive: Driver) -> None:
    lease = await drive.run("m1")
    async with drive.unchanged():
        assert await drive.commit(lease, outbox=(OutboxRow("r1", "other", "{}"),)) == ["BINDING"]
    await drive.commit(lease, outbox=(OutboxRow("r1", SESSION, "{}"),))
    ((_, row),) = await drive.redis("XRANGE", drive.shared("outbox"), "-", "+")
    assert row == ["id", "r1", "session", SESSION, "body", "{}"]


# Controls


@pytest.mark.parametrize("end", ["completed", "requeue"])
async def test_an_interrupted_turn_can_only_fail_or_be_aborted(drive: Driver, end: str) -> None:
    """Hole 11, answer (c): the order of scripts is the arbiter."""
    lease = await drive.run("m1")
    await drive.interrupt("i1")
    async with drive.unchanged():
        assert await drive.commit(lease, "end", end=end, next="release") == [
            "CONTROL", "interrupt", "i1",
        ]  # fmt: skip


async def test_an_abort_under_a_rollback_takes_the_turn_out_of_the_context(drive: Driver) -> None:
    """Also one that was made up for an interrupt, before the rollback came."""
    lease = await drive.run("m1")
    await drive.interrupt("i1")
    await drive.submit("m2", policy="rollback")
    async with drive.unchanged():
        assert await drive.commit(lease, "end", end="aborted", next="release") == [
            "CONTROL", "rollback", "i1",
        ]  # fmt: skip
    gone = Event(type="context_rolled_back", turn_id="t_1")
    ended = await drive.commit(lease, "end", end="aborted", next="release", events=(gone,))
    assert committed(ended)["held"] == "gone"
    assert (await drive.receipt("m1") or {})["ending"] == "aborted"


async def test_a_turn_may_fail_under_a_rollback(drive: Driver) -> None:
    lease = await drive.run("m1")
    await drive.submit("m2", policy="rollback")
    await drive.finish(lease, end="failed")
    assert (await drive.receipt("m1") or {})["ending"] == "failed"


@pytest.mark.parametrize("end", ["aborted", "failed"])
async def test_the_end_of_a_turn_settles_its_interrupt(drive: Driver, end: str) -> None:
    """Hole 12, F5."""
    lease = await drive.run("m1")
    await drive.interrupt("i1")
    assert (await drive.finish(lease, end=end))["ctl_kind"] == ""
    assert (await drive.receipt("i1") or {})["ending"] == "completed"
    assert (await drive.receipt("i1") or {})["turn"] == "t_1"
    assert (await drive.receipt("m1") or {})["ending"] == end
    head = await drive.head()
    assert not {"ctl_turn", "ctl_kind", "ctl_sub", "turn"} & set(head)
    assert head["ctl_epoch"] == "1"


async def test_steps_of_an_interrupted_turn_pass_and_report_it(drive: Driver) -> None:
    """Hole 11: a tool result that has happened is never lost."""
    lease = await drive.run("m1")
    await drive.interrupt()
    reply = committed(await drive.commit(lease, "result", progress=True))
    assert (reply["ctl_epoch"], reply["ctl_kind"]) == ("1", "interrupt")
    assert await drive.redis("HEXISTS", drive.shared("alerts"), SESSION) == 0


# Inputs


@pytest.mark.parametrize("taken", [(9,), (2,), (1, 9)])
async def test_a_take_of_what_cannot_be_taken_names_what_can(
    drive: Driver, taken: tuple[int, ...]
) -> None:
    """Hole 13."""
    await drive.submit("m1")
    await drive.submit("m2", due_ms=await drive.now() + LATER_MS)
    lease = await drive.hold()
    async with drive.unchanged():
        assert await drive.commit(lease, "start", take=taken) == ["INPUT", ["1"]]


async def test_a_cancel_wins_over_a_take_that_comes_after_it(drive: Driver) -> None:
    """Hole 13."""
    await drive.submit("m1")
    await drive.submit("m2")
    lease = await drive.hold()
    assert await drive.cancel("m1") == ["CANCELLED"]
    async with drive.unchanged():
        assert await drive.commit(lease, "start", take=(1, 2)) == ["INPUT", ["2"]]


async def test_what_a_turn_holds_cannot_be_taken_again(drive: Driver) -> None:
    lease = await drive.run("m1")
    async with drive.unchanged():
        assert await drive.commit(lease, "take", take=(1,)) == ["INPUT", []]


@pytest.mark.parametrize("kind", ["start", "take"])
async def test_a_take_takes_something(drive: Driver, kind: str) -> None:
    if kind == "start":
        await drive.submit("m1")
        lease = await drive.hold()
    else:
        lease = await drive.run("m1")
    async with drive.unchanged():
        assert (await drive.commit(lease, kind))[0] == "INPUT"


async def test_a_running_turn_takes_a_steer(drive: Driver) -> None:
    lease = await drive.run("m1")
    await drive.submit("m2", policy="steer")
    assert committed(await drive.commit(lease, "take", take=(2,)))["waiting"] == "0"
    await drive.finish(lease)
    assert (await drive.receipt("m2") or {})["turn"] == "t_1"


async def test_a_joined_turn_settles_all_its_inputs_alike_and_in_order(drive: Driver) -> None:
    """Answer (a)."""
    lease = await drive.run("m1", "m2")
    await drive.submit("m3")
    ended = TurnCompleted(submission_ids=("m1", "m2"), text="ok")
    reply = await drive.finish(
        lease,
        events=(Event(type="before"), ended, Event(type="after")),
        turn_record="the record",
        next="release",
    )
    for id in ("m1", "m2"):
        receipt = await drive.receipt(id) or {}
        assert (receipt["ending"], receipt["turn"], receipt["end_seq"]) == ("completed", "t_1", "2")
    assert (await drive.receipt("m3") or {})["ending"] == ""
    assert await drive.bodies("turns") == {1: "the record"}
    assert sorted(await drive.bodies("inbox")) == [3]
    assert sorted(await drive.work()) == ["3"]
    assert (reply["status"], reply["ready_count"]) == ("ready", "1")
    assert await drive.kinds() == ["before", "turn_completed", "after"]


async def test_an_ended_receipt_never_changes(drive: Driver) -> None:
    lease = await drive.run("m1")
    ended = "d:m1|1|0|1|cancelled||1|1"
    await drive.redis("HSET", drive.key("receipts"), "m1", ended)
    await drive.finish(lease)
    assert await drive.redis("HGET", drive.key("receipts"), "m1") == ended


async def test_what_is_settled_begins_to_age(drive: Driver) -> None:
    """Hole 35: from the end on, and not before."""
    lease = await drive.run("m1")
    assert await drive.redis("ZRANGE", drive.key("settled"), 0, -1) == ["|"]
    await drive.finish(lease)
    assert await drive.redis("ZRANGE", drive.key("settled"), 0, -1) == ["m1", "|"]
    age = await drive.now() - float(await drive.redis("ZSCORE", drive.key("settled"), "m1"))
    assert 0 <= age < LATER_MS


async def test_a_turn_may_start_and_end_in_one_commit(drive: Driver) -> None:
    await drive.submit("m1")
    lease = await drive.hold()
    reply = committed(
        await drive.commit(
            lease, "start", take=(1,), end="completed", next="release", progress=True,
            turn_record="r",
        )
    )  # fmt: skip
    assert (reply["held"], reply["status"]) == ("gone", "idle")
    assert (await drive.receipt("m1") or {})["turn"] == "t_1"
    assert await drive.bodies("turns") == {1: "r"}


# Requeue


async def test_a_requeue_keeps_positions_and_the_group(drive: Driver) -> None:
    """Hole 57: the next take names the whole group."""
    lease = await drive.run("m1", "m2")
    await drive.submit("m3")
    assert (await drive.finish(lease, end="requeue", progress=False))["status"] == "ready"
    work = await drive.work()
    assert [work[n][2:4] for n in ("1", "2", "3")] == [["", "t_1"], ["", "t_1"], ["", ""]]
    assert (await drive.receipt("m1") or {})["ending"] == ""
    lease = await drive.hold(nonce="n2")
    async with drive.unchanged():
        assert await drive.commit(lease, "start", take=(1, 3)) == ["INPUT", ["1", "2", "3"]]
    committed(await drive.commit(lease, "start", take=(1, 2)))
    assert (await drive.work())["1"][2:4] == ["t_2", ""]


# Waits


async def test_an_answer_is_consumed_with_its_wait(drive: Driver) -> None:
    await drive.park("w1")
    await drive.answer("w1", "a1")
    lease = await drive.hold(nonce="n2")
    committed(await drive.commit(lease, "answer", consume=(("w1", 2),), progress=True))
    assert sorted(await drive.work()) == ["1"]
    assert sorted(await drive.bodies("inbox")) == [1]
    receipt = await drive.receipt("a1") or {}
    assert (receipt["ending"], receipt["turn"]) == ("completed", "t_1")


@pytest.mark.parametrize("consume", [(("w1", 2),), (("w9", 2),), (("w1", 0),)])
async def test_only_an_answer_that_is_there_is_consumed(
    drive: Driver, consume: tuple[tuple[str, int], ...]
) -> None:
    await drive.park("w1")
    await drive.interrupt()
    lease = await drive.hold(nonce="n2")
    async with drive.unchanged():
        assert await drive.commit(lease, "answer", consume=consume) == ["INPUT", []]


async def test_an_answer_is_consumed_under_its_own_number(drive: Driver) -> None:
    await drive.park("w1")
    await drive.answer("w1")
    await drive.submit("m2")
    lease = await drive.hold(nonce="n2")
    async with drive.unchanged():
        for n in (1, 3):
            assert (await drive.commit(lease, "answer", consume=(("w1", n),)))[0] == "INPUT"


async def test_an_answer_is_consumed_once(drive: Driver) -> None:
    """A doubled pair would fail after the first writes."""
    await drive.park("w1")
    await drive.answer("w1")
    lease = await drive.hold(nonce="n2")
    async with drive.unchanged():
        doubled = (("w1", 2), ("w1", 2))
        assert await drive.commit(lease, "answer", consume=doubled) == ["INPUT", []]


async def test_the_end_of_a_turn_settles_answers_that_it_did_not_consume(drive: Driver) -> None:
    """Hole 7, F5: never settled, or woken for ever, otherwise."""
    await drive.park("w1")
    await drive.answer("w1", "a1")
    lease = await drive.hold(nonce="n2")
    assert (await drive.finish(lease, end="aborted"))["status"] == "idle"
    assert (await drive.receipt("a1") or {})["ending"] == "superseded"
    event = (await drive.journal())[-1]
    assert (event["type"], event["sub"]) == ("submission_superseded", "a1")
    assert (await drive.work(), await drive.bodies("inbox")) == ({}, {})


async def test_a_wait_whose_time_has_passed_is_closed_with_the_commit(drive: Driver) -> None:
    lease = await drive.run("m1")
    await drive.commit(lease, waits=(NewWait("w1", "timer", 1), NewWait("w2", "approval")))
    committed(await drive.commit(lease, "retry", closes=("w1",)))
    assert sorted(await drive.work()) == ["1", "w:w2"]


@pytest.mark.parametrize(
    "closes", [("w9",), ("w1",), ("w2", "w2"), ("w2", "w9")],
    ids=["unknown", "answered", "twice", "one of two unknown"],
)  # fmt: skip
async def test_only_an_unanswered_wait_that_is_there_is_closed_and_once(
    drive: Driver, closes: tuple[str, ...]
) -> None:
    lease = await drive.run("m1")
    await drive.commit(lease, waits=(NewWait("w1", "approval"), NewWait("w2", "timer", 1)))
    await drive.answer("w1")
    async with drive.unchanged():
        assert await drive.commit(lease, "retry", closes=closes) == ["INPUT", []]


async def test_a_wait_is_not_closed_and_answered_by_one_commit(drive: Driver) -> None:
    await drive.park("w1")
    await drive.answer("w1")
    lease = await drive.hold(nonce="n2")
    async with drive.unchanged():
        both = await drive.commit(lease, "answer", consume=(("w1", 2),), closes=("w1",))
        assert both == ["INPUT", []]


async def test_a_closed_wait_does_not_wake_its_session_any_more(drive: Driver) -> None:
    lease = await drive.run("m1")
    await drive.commit(lease, waits=(NewWait("w1", "timer", 1),))
    deadline = await drive.now() + LATER_MS
    opened = (NewWait("w2", "timer", deadline),)
    reply = committed(await drive.commit(lease, closes=("w1",), waits=opened, next="park"))
    assert (reply["held"], reply["status"]) == ("gone", "parked")
    assert (await drive.indexes(), await drive.score("timers")) == ({"timers"}, deadline)


async def test_a_wait_may_be_closed_and_opened_again_by_one_commit(drive: Driver) -> None:
    lease = await drive.run("m1")
    await drive.commit(lease, waits=(NewWait("w1", "timer", 1),))
    deadline = await drive.now() + LATER_MS
    opened = (NewWait("w1", "timer", deadline),)
    reply = committed(await drive.commit(lease, closes=("w1",), waits=opened, next="park"))
    assert reply["status"] == "parked"
    assert (await drive.work())["w:w1"] == ["timer", str(deadline), "", "0"]


async def test_a_park_needs_a_wait_that_it_does_not_close_itself(drive: Driver) -> None:
    lease = await drive.run("m1")
    await drive.commit(lease, waits=(NewWait("w1", "timer", 1),))
    async with drive.unchanged():
        assert await drive.commit(lease, closes=("w1",), next="park") == ["BAD_PARK"]


async def test_the_end_of_a_turn_drops_the_waits_that_it_did_not_close(drive: Driver) -> None:
    lease = await drive.run("m1")
    await drive.commit(lease, waits=(NewWait("w1", "timer", 1),))
    assert (await drive.finish(lease, end="aborted"))["status"] == "idle"
    assert (await drive.work(), await drive.indexes()) == ({}, set())


# Parking


async def test_however_often_a_turn_parks_it_uses_no_attempt_up(drive: Driver) -> None:
    lease = await drive.run("m1")
    for round in range(8):
        await drive.wait_for(lease, "w1", "timer", await drive.now() + LATER_MS)
        assert (await drive.head())["attempts"] == "0"
        await drive.set_wait_due("w1")
        assert await drive.reap() == [["PLACED", "ready"]]
        lease = await drive.hold(nonce=f"again-{round}")
        assert (await drive.head())["attempts"] == "1"
        committed(await drive.commit(lease, "retry", closes=("w1",)))


async def test_parking_releases_and_waits(drive: Driver) -> None:
    lease = await drive.run("m1")
    reply = await drive.wait_for(lease, "w1")
    assert (reply["held"], reply["status"]) == ("gone", "parked")
    assert (await drive.head())["parked"] == "1"
    assert await drive.indexes() == set()
    assert await drive.redis("HEXISTS", drive.shared("owners"), SESSION) == 0


async def test_parking_on_a_deadline_waits_in_the_timers(drive: Driver) -> None:
    lease = await drive.run("m1")
    deadline = await drive.now() + LATER_MS
    assert (await drive.wait_for(lease, "w1", "job", deadline))["status"] == "parked"
    assert (await drive.indexes(), await drive.score("timers")) == ({"timers"}, deadline)


@pytest.mark.parametrize("eligible", ["answer", "control", "deadline"])
async def test_parking_keeps_the_lease_if_something_is_eligible(
    drive: Driver, eligible: str
) -> None:
    """Hole 15: what lands between the worker's check and its park is not lost."""
    lease = await drive.run("m1")
    deadline = 1 if eligible == "deadline" else 0
    await drive.commit(lease, waits=(NewWait("w1", "approval", deadline), NewWait("w2", "client")))
    if eligible == "answer":
        await drive.answer("w1")
    elif eligible == "control":
        await drive.interrupt()
    reply = committed(await drive.commit(lease, next="park"))
    assert (reply["held"], reply["status"]) == ("held", "held")
    assert "parked" not in await drive.head()
    assert await drive.indexes() == {"leases"}
    assert (await drive.renew(lease))[0][0] == "OK"


async def test_parking_keeps_the_lease_if_its_only_wait_has_been_answered(drive: Driver) -> None:
    """Hole 15: the answer came before the park that was to wait for it."""
    lease = await drive.run("m1")
    await drive.commit(lease, waits=(NewWait("w1", "approval"),))
    await drive.answer("w1")
    reply = committed(await drive.commit(lease, next="park"))
    assert (reply["held"], reply["status"]) == ("held", "held")
    async with drive.unchanged():
        both = await drive.commit(lease, consume=(("w1", 2),), next="park")
        assert both == ["BAD_PARK"]
    await drive.commit(lease, "answer", consume=(("w1", 2),))
    await drive.finish(lease)


async def test_a_message_does_not_wake_a_parked_turn(drive: Driver) -> None:
    await drive.park("w1")
    await drive.submit("m2")
    assert (await drive.status(), await drive.indexes()) == ("parked", set())


@pytest.mark.parametrize("why", ["no wait", "with an end", "job without deadline", "no turn"])
async def test_a_park_that_could_never_end_is_refused(drive: Driver, why: str) -> None:
    """Hole 10: a job that dies leaves nothing that would wake its turn."""
    if why == "no turn":
        await drive.submit("m1")
        lease = await drive.hold()
    else:
        lease = await drive.run("m1")
    wait = NewWait("w1", "job" if why == "job without deadline" else "approval")
    waits = () if why == "no wait" else (wait,)
    end = "completed" if why == "with an end" else ""
    async with drive.unchanged():
        assert await drive.commit(lease, waits=waits, end=end, next="park") == ["BAD_PARK"]


async def test_a_job_wait_opened_before_needs_its_deadline_as_well(drive: Driver) -> None:
    """Hole 10."""
    lease = await drive.run("m1")
    await drive.commit(lease, waits=(NewWait("w1", "job"), NewWait("w2", "approval")))
    async with drive.unchanged():
        assert await drive.commit(lease, next="park") == ["BAD_PARK"]


# Closing


async def test_a_close_settles_everything_that_is_left(drive: Driver) -> None:
    """Hole 54: also what arrived between the decision and the commit."""
    lease = await drive.run("m1")
    await drive.submit("m2")
    await drive.submit("m3", due_ms=await drive.now() + LATER_MS)
    reply = await drive.finish(lease, next="close")
    assert (reply["held"], reply["status"]) == ("gone", "closed")
    endings = [(await drive.receipt(id) or {})["ending"] for id in ("m1", "m2", "m3")]
    assert endings == ["completed", "cancelled", "cancelled"]
    assert await drive.kinds() == ["submission_cancelled", "submission_cancelled"]
    assert (await drive.work(), await drive.bodies("inbox")) == ({}, {})
    assert await drive.indexes() == set()


async def test_only_an_end_may_close(drive: Driver) -> None:
    lease = await drive.run("m1")
    async with drive.unchanged():
        assert await drive.commit(lease, next="close") == ["BAD_PARK"]


# The next state


async def test_a_release_recomputes_when_the_session_is_due(drive: Driver) -> None:
    """Hole 16: the schedule is not forgotten."""
    lease = await drive.run("m1")
    due = await drive.now() + LATER_MS
    await drive.submit("m2", due_ms=due)
    assert (await drive.finish(lease))["status"] == "idle"
    assert (await drive.indexes(), await drive.score("timers")) == ({"timers"}, due)


async def test_a_message_that_arrives_before_the_release_makes_it_ready(drive: Driver) -> None:
    """Hole 15."""
    lease = await drive.run("m1")
    await drive.submit("m2")
    assert (await drive.finish(lease))["status"] == "ready"


async def test_a_release_of_an_open_turn_leaves_it_ready(drive: Driver) -> None:
    lease = await drive.run("m1")
    reply = committed(await drive.commit(lease, next="release"))
    assert (reply["held"], reply["status"]) == ("gone", "ready")


@pytest.mark.parametrize(
    ("waiting", "quantum", "others", "held"),
    [
        (True, True, True, "held"),
        (True, False, False, "held"),
        (True, False, True, "gone"),
        (False, True, False, "gone"),
    ],
)
async def test_going_on_needs_work_and_a_turn_of_the_quantum_or_nobody_else(
    drive: Driver, waiting: bool, quantum: bool, others: bool, held: str
) -> None:
    """Hole 47: a chatty session does not keep a slot for ever."""
    lease = await drive.run("m1")
    if waiting:
        await drive.submit("m2")
    if others:
        await drive.neighbour().submit("m1")
    reply = await drive.finish(lease, next="auto", quantum_left=quantum)
    assert reply["held"] == held
    assert reply["status"] == ("held" if held == "held" else "ready" if waiting else "idle")


async def test_a_release_without_progress_gives_the_attempt_back(drive: Driver) -> None:
    lease = await drive.run("m1")
    assert (await drive.head())["attempts"] == "1"
    await drive.commit(lease, "recover", next="release")
    assert (await drive.head())["attempts"] == "0"


@pytest.mark.parametrize("kind", ["start", "take", "retry", "recover"])
async def test_only_progress_resets_the_attempts(drive: Driver, kind: str) -> None:
    """Hole 17."""
    await drive.submit("m1")
    await drive.set_head(attempts=2)
    lease = await drive.hold()
    await drive.commit(lease, "start", take=(1,))
    await drive.submit("m2", policy="steer")
    if kind != "start":
        await drive.commit(lease, kind, take=(2,) if kind == "take" else ())
    assert (await drive.head())["attempts"] == "3"
    await drive.commit(lease, "step", progress=True)
    head = await drive.head()
    assert (head["attempts"], head["attempts0"]) == ("0", "0")


async def test_each_commit_says_how_long_the_next_step_may_take(drive: Driver) -> None:
    """Hole 20: a keeper does not keep a hung step alive."""
    lease = await drive.run("m1")
    await drive.commit(lease, max_step_ms=50_000)
    stall = int(await drive.redis("HGET", drive.shared("stalls"), SESSION))
    assert await drive.now() + 40_000 < stall <= await drive.now() + 50_000
    await drive.finish(lease)
    assert await drive.redis("HEXISTS", drive.shared("stalls"), SESSION) == 0


# Streams


async def test_three_checkpoints_are_kept(drive: Driver) -> None:
    lease = await drive.run("m1")
    for _ in range(4):
        await drive.commit(lease)
    assert sorted(await drive.bodies("checkpoint")) == [3, 4, 5]


async def test_deltas_of_a_completed_step_are_deleted_by_number(drive: Driver) -> None:
    """Hole 50, D9: the worker's own numbers and nothing else."""
    lease = await drive.run("m1")
    await drive.append(lease, 1, Event(type="delta"), Event(type="kept"), Event(type="delta"))
    reply = committed(await drive.commit(lease, drop_seqs=(1, 3), events=(Event(type="done"),)))
    assert reply["first_seq"] == "4"
    assert [(e["seq"], e["type"]) for e in await drive.journal()] == [("2", "kept"), ("4", "done")]
    assert (await drive.head())["seq"] == "4"


async def test_a_new_context_epoch_replaces_the_old_one(drive: Driver) -> None:
    lease = await drive.run("m1")
    await drive.commit(lease, context="first", context_epoch=1)
    await drive.commit(lease, context="second", context_epoch=2, keep_from=7)
    keys = drive.partition
    assert await drive.redis("GET", keys.context(SESSION, 2)) == "second"
    assert await drive.redis("EXISTS", keys.context(SESSION, 1)) == 0
    head = await drive.head()
    assert (head["context_epoch"], head["keep_from"]) == ("2", "7")


async def test_time_never_goes_back_within_a_session(drive: Driver) -> None:
    """Hole 49."""
    lease = await drive.run("m1")
    ahead = await drive.now() + LATER_MS
    await drive.set_head(at_ms=ahead)
    await drive.commit(lease, events=(Event(type="x"),))
    assert [int(e["at"]) for e in await drive.journal()] == [ahead]


# Limits


async def test_too_many_bytes_are_refused_before_anything_is_written(drive: Driver) -> None:
    """Hole 48."""
    lease = await drive.run("m1")
    async with drive.unchanged():
        reply = await drive.commit(lease, checkpoint="x" * 33_554_433)
    assert reply == ["TOO_BIG", "33554433", "33554432"]


async def test_eight_thousand_items_and_events_fit_into_one_commit(drive: Driver) -> None:
    """Hole 48: loops, never one huge unpack."""
    lease = await drive.run("m1")
    many = 2_000 if drive.executor.plain_scripts else 8_000
    reply = committed(
        await drive.commit(lease, items=("i",) * many, events=(Event(type="x"),) * many)
    )
    assert reply["first_seq"] == "1"
    head = await drive.head()
    assert (head["seq"], head["transcript_n"]) == (str(many), str(many))


async def test_numbers_near_the_end_of_doubles_are_refused(drive: Driver) -> None:
    lease = await drive.run("m1")
    await drive.set_head(seq=9007199254740000)
    async with drive.unchanged():
        with pytest.raises(Exception, match="LIMIT seq"):
            await drive.commit(lease)
        with pytest.raises(Exception, match="LIMIT seq"):
            await drive.append(lease)


async def test_numbers_keep_all_their_digits(drive: Driver) -> None:
    lease = await drive.run("m1")
    await drive.set_head(seq=900719925473099)
    reply = committed(await drive.commit(lease, events=(Event(type="x"),)))
    assert reply["first_seq"] == "900719925473100"
    assert (await drive.head())["seq"] == "900719925473100"


async def test_the_route_is_the_sessions_own(drive: Driver) -> None:
    """Hole 37."""
    lease = await drive.run("m1")
    await drive.set_head(route="elsewhere@1")
    async with drive.unchanged():
        assert await drive.commit(lease) == ["ROUTE", "elsewhere@1"]


async def test_a_commit_reports_new_positions_and_what_waits(drive: Driver) -> None:
    lease = await drive.run("m1")
    await drive.submit("m2")
    await drive.submit("m3", due_ms=await drive.now() + LATER_MS)
    reply = committed(await drive.commit(lease))
    assert (reply["n"], reply["waiting"]) == ("3", "1")


async def test_a_lease_is_as_long_as_asked(drive: Driver) -> None:
    await drive.run("m1", ttl_ms=TTL_MS)
    assert await drive.score("leases") <= await drive.now() + TTL_MS


# Quarantine


async def test_a_commit_that_quarantines_stops_the_session_and_keeps_its_turn(
    drive: Driver,
) -> None:
    lease = await drive.run("m1")
    stopped = Event(type="session_quarantined", turn_id="t_1")
    reply = committed(
        await drive.commit(lease, "recover", items=("one",), events=(stopped,), next="quarantine")
    )
    assert (reply["held"], reply["status"]) == ("gone", "quarantined")
    head = await drive.head()
    assert (head["status"], head["turn"], head["quarantine_no"]) == ("quarantined", "t_1", "1")
    assert await drive.indexes() == {"quarantine"}
    assert await drive.kinds() == ["session_quarantined"]
    assert await drive.bodies("transcript") == {1: "one"}
    assert (await drive.receipt("m1") or {})["ending"] == ""
    for table in ("owners", "stalls", "alerts"):
        assert await drive.redis("HEXISTS", drive.shared(table), SESSION) == 0


async def test_a_commit_that_quarantines_uses_no_attempt_up(drive: Driver) -> None:
    """Its worker has not died: it says why."""
    lease = await drive.run("m1")
    before = (await drive.head()).get("attempts0", "0")
    committed(await drive.commit(lease, "recover", next="quarantine"))
    assert (await drive.head()).get("attempts", "0") == before == "0"


async def test_the_repeat_of_a_commit_that_quarantines_is_answered_alike(drive: Driver) -> None:
    lease = await drive.run("m1")
    commit = await drive.commit_of("recover", next="quarantine")
    request = requests.commit(drive.fleet.keys, lease, commit)
    first = await drive.call(request)
    async with drive.unchanged():
        assert await drive.call(request) == ["REPLAY", *first[1:]]


@pytest.mark.parametrize("end", ["completed", "failed", "aborted", "requeue"])
async def test_a_commit_that_ends_its_turn_cannot_quarantine(drive: Driver, end: str) -> None:
    lease = await drive.run("m1")
    async with drive.unchanged():
        assert await drive.commit(lease, "end", end=end, next="quarantine") == ["BAD_PARK"]


async def test_nobody_holds_writes_or_claims_what_a_commit_has_quarantined(drive: Driver) -> None:
    lease = await drive.run("m1")
    committed(await drive.commit(lease, "recover", next="quarantine"))
    async with drive.unchanged():
        assert await drive.commit(lease) == ["GONE"]
        assert await drive.claim(nonce="n2") == [["NONE"]]
        await drive.reap()
    assert await drive.status() == "quarantined"


async def test_what_is_sent_to_a_session_that_a_commit_has_quarantined_waits(
    drive: Driver,
) -> None:
    lease = await drive.run("m1")
    committed(await drive.commit(lease, "recover", next="quarantine"))
    assert accepted(await drive.submit("m2"))["status"] == "quarantined"
    assert accepted(await drive.interrupt("i1"))["status"] == "quarantined"
    assert await drive.indexes() == {"quarantine"}
    assert (await drive.receipt("m2") or {})["ending"] == ""


async def test_a_commit_that_quarantines_carries_waits_and_interrupts_along(
    drive: Driver,
) -> None:
    """An operator who redrives the session finds what the turn waited for."""
    lease = await drive.run("m1")
    await drive.interrupt("i1")
    opened = (NewWait("w1", "timer", await drive.now() + LATER_MS),)
    committed(await drive.commit(lease, "recover", waits=opened, next="quarantine"))
    head = await drive.head()
    assert (head["ctl_turn"], head["ctl_sub"]) == ("t_1", "i1")
    assert "w:w1" in await drive.work()

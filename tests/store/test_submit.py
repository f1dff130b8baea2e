"""`submit`: accepted once, answered the same for ever, refused without a trace."""

from __future__ import annotations

from typing import Any

import pytest

from changeover_shared._events import Message
from changeover_shared._identifiers import new_submission_id
from changeover_shared._policies import Wish
from changeover_shared._store import requests
from changeover_shared._store.keys import route_of
from changeover_shared._store.records import Create, Submit
from changeover_shared._words import GiveUp
from tests.support.driving import LATER_MS, SESSION, Driver, accepted

MINUTE = 60_000


def uuid7(at_ms: int) -> str:
    """A UUIDv7 of a chosen time."""
    digits = f"{at_ms:012x}"
    return f"{digits[:8]}-{digits[8:]}-7abc-8def-0123456789ab"


async def test_a_first_submission_creates_its_session_and_makes_it_ready(drive: Driver) -> None:
    reply = accepted(await drive.submit("m1"))
    assert reply == {
        "n": "1", "seq": "0", "turn": "", "status": "ready", "ready_count": "1",
        "position": "0", "agent": "assistant", "route": drive.route, "replaced": [],
    }  # fmt: skip
    head = await drive.head()
    assert (head["status"], head["life"], head["fence"], head["rev"]) == ("ready", "1", "0", "0")
    assert await drive.indexes() == {"ready"}
    assert await drive.bodies("inbox") == {1: "body of m1"}
    assert (await drive.work())["1"] == ["turn", "0", "", "", "m1", "", "10"]


async def test_every_key_of_a_session_exists_from_its_creation(drive: Driver) -> None:
    """Hole 1: a key that never existed cannot be told from one that has moved."""
    await drive.submit("m1")
    for name in ("head", "work", "inbox", "receipts", "settled", "journal", "checkpoint",
                 "transcript", "turns"):  # fmt: skip
        assert await drive.redis("EXISTS", drive.key(name)) == 1, name


async def test_a_message_event_is_written_with_its_submission(drive: Driver) -> None:
    reply = accepted(await drive.submit("m1", event=Message(text="hi")))
    (event,) = await drive.journal()
    assert event["seq"] == reply["seq"] == "1"
    assert (event["type"], event["sub"], event["turn"], event["body"]) == (
        "message", "m1", "", '{"text":"hi"}',
    )  # fmt: skip


async def test_a_repeat_is_answered_like_the_first_and_changes_nothing(drive: Driver) -> None:
    """Answer (h): the receipt is the memory of the first answer."""
    first = accepted(await drive.submit("m1", event=Message(text="hi")))
    async with drive.unchanged():
        repeat = await drive.submit("m1", event=Message(text="hi"))
    assert repeat[0] == "DUPLICATE"
    assert repeat[1:5] == [first["n"], first["seq"], "", "ready"]
    assert repeat[5:] == ["", "assistant", drive.route, "0"]


async def test_a_repeat_after_the_end_carries_the_ending(drive: Driver) -> None:
    lease = await drive.run("m1")
    await drive.finish(lease)
    async with drive.unchanged():
        repeat = await drive.submit("m1")
    assert (repeat[0], repeat[5]) == ("DUPLICATE", "completed")


async def test_a_receipt_is_looked_up_before_any_refusal(drive: Driver) -> None:
    """A repeat of what was accepted is never told that there is no room for it."""
    await drive.submit("m1")
    async with drive.unchanged():
        assert (await drive.submit("m1", max_depth=1))[0] == "DUPLICATE"
        assert (await drive.submit("m1", max_size=1))[0] == "DUPLICATE"
        assert (await drive.submit("m1", route="elsewhere@1"))[0] == "DUPLICATE"


async def test_an_id_with_other_content_is_a_mismatch(drive: Driver) -> None:
    await drive.submit("m1")
    async with drive.unchanged():
        assert (await drive.submit("m1", digest="another"))[0] == "MISMATCH"


async def test_an_unknown_session_is_not_created_when_it_may_not_be(drive: Driver) -> None:
    """Hole 33: a delivery never brings a session to life."""
    await drive.submit("m1")
    async with drive.unchanged():
        assert await drive.neighbour().submit("m1", may_create=False) == ["UNKNOWN"]


async def test_a_deleted_session_is_not_created_again_when_it_may_not_be(drive: Driver) -> None:
    """Hole 33."""
    await drive.submit("m1")
    await drive.wipe_out()
    async with drive.unchanged():
        assert await drive.submit("m2", may_create=False) == ["DELETED"]


async def test_a_new_life_continues_every_counter_of_the_old_one(drive: Driver) -> None:
    """Hole 34, answer (g): fences and numbers never go back."""
    await drive.finish(await drive.run("m1"), items=("one",))
    await drive.submit("m2", event=Message(text="hi"))
    before = await drive.head()
    await drive.wipe_out()
    reply = accepted(await drive.submit("m3", event=Message(text="again")))
    after = await drive.head()
    assert after["life"] == "2"
    assert int(after["fence"]) == int(before["fence"]) + 1
    for counter in ("rev", "turns", "transcript_n"):
        assert after[counter] == before[counter], counter
    assert int(reply["n"]) == int(before["n"]) + 1
    assert int(reply["seq"]) == int(before["seq"]) + 1
    assert after["first_seq"] == reply["seq"]
    assert (await drive.submit("m2"))[0] == "DUPLICATE"


async def test_a_session_begins_above_the_floor_of_its_partition(drive: Driver) -> None:
    """Hole 34: what purged tombstones leave behind."""
    await drive.submit("m1")
    floors = {"fence": 7, "seq": 70, "rev": 5, "n": 9, "turns": 4, "transcript": 30, "life": 2}
    for name, value in floors.items():
        await drive.redis("HSET", drive.shared("meta"), f"floor_{name}", value)
    fresh = drive.neighbour()
    reply = accepted(await fresh.submit("m1", event=Message(text="hi")))
    head = await fresh.head()
    assert (reply["n"], reply["seq"], head["life"], head["fence"]) == ("10", "71", "3", "7")
    assert (await fresh.receipt("m1") or {})["seq"] == "71"
    assert (await fresh.journal())[0]["seq"] == "71"
    await fresh.hold()
    assert (await fresh.head())["fence"] == "8"


async def test_a_closed_session_takes_nothing_more(drive: Driver) -> None:
    await drive.close(await drive.run("m1"))
    async with drive.unchanged():
        assert await drive.submit("m2") == ["CLOSED"]
        assert await drive.interrupt() == ["CLOSED"]
        assert (await drive.submit("m1"))[0] == "DUPLICATE"


async def test_a_session_that_waits_elsewhere_says_where(drive: Driver) -> None:
    """Hole 37: the stored route decides which ready set is written."""
    await drive.submit("m1")
    async with drive.unchanged():
        reply = await drive.submit("m2", route="elsewhere@1")
    assert reply == ["ROUTE", drive.route, "assistant"]


async def test_a_route_carries_the_format_class(drive: Driver) -> None:
    """Hole 39: a worker that cannot read a format never sees its sessions."""
    assert route_of("assistant") == "assistant@1"
    await drive.submit("m1")
    assert (await drive.head())["route"] == "assistant@1"
    assert (await drive.peek("assistant@2"))[3] == [["0"]]


async def test_a_second_creator_gets_the_stored_values(drive: Driver) -> None:
    """Hole 60: creation conflicts are never merged."""
    first = Create(route=drive.route, agent="assistant", tenant="acme", context='{"a":"1"}')
    await drive.submit("m1", create=first)
    other = Create(route=drive.route, agent="other", tenant="evil", context='{"b":"2"}')
    reply = accepted(await drive.submit("m2", create=other))
    assert reply["agent"] == "assistant"
    head = await drive.head()
    assert (head["agent"], head["tenant"], head["context"]) == ("assistant", "acme", '{"a":"1"}')


async def test_an_answer_that_nobody_waits_for_is_stale(drive: Driver) -> None:
    """Hole 8: the wait is gone with its turn."""
    lease = await drive.run("m1")
    async with drive.only_a_warning("stale"):
        assert await drive.answer("w1") == ["STALE"]
    await drive.wait_for(lease)
    await drive.answer("w1", "a1")
    await drive.finish(await drive.hold(nonce="n2"), end="aborted")
    async with drive.only_a_warning("stale"):
        assert await drive.answer("w1", "a2") == ["STALE"]
    assert await drive.receipt("a2") is None


async def test_the_first_answer_wins(drive: Driver) -> None:
    """Hole 8."""
    await drive.park("w1")
    first = accepted(await drive.answer("w1", "a1"))
    async with drive.only_a_warning("answered"):
        assert await drive.answer("w1", "a2") == ["ANSWERED"]
    assert (await drive.work())["w:w1"][3] == first["n"]
    assert (await drive.answer("w1", "a1"))[0] == "DUPLICATE"


async def test_an_answer_makes_its_parked_session_ready(drive: Driver) -> None:
    await drive.park("w1")
    assert await drive.indexes() == set()
    reply = accepted(await drive.answer("w1"))
    assert (reply["status"], reply["turn"]) == ("ready", "t_1")
    assert await drive.indexes() == {"ready"}
    assert (await drive.work())[reply["n"]][:3] == ["answer", "0", "t_1"]


async def test_answers_and_controls_come_into_a_full_inbox(drive: Driver) -> None:
    """Hole 6: else the turn could never end and the inbox never drain."""
    await drive.park("w1")
    assert (await drive.submit("m2", max_depth=1))[0] == "BUSY"
    full = {"max_depth": 0, "max_bytes": 0}
    answered = await drive.submit("a1", cls="answer", target="w1", may_create=False, **full)
    assert answered[0] == "ACCEPTED"
    assert (await drive.submit("i1", cls="ctl", may_create=False, **full))[0] == "ACCEPTED"


async def test_a_control_without_a_turn_is_refused(drive: Driver) -> None:
    """Hole 3."""
    await drive.submit("m1")
    async with drive.only_a_warning("no_turn"):
        assert await drive.interrupt() == ["NO_TURN"]
    async with drive.unchanged():
        assert await drive.neighbour().submit("i1", cls="ctl") == ["NO_TURN"]


async def test_a_control_of_another_turn_is_refused(drive: Driver) -> None:
    """Hole 3: a late copy never stops the next turn."""
    lease = await drive.run("m1")
    async with drive.only_a_warning("stale_turn"):
        assert await drive.interrupt(turn="t_9") == ["STALE_TURN", "t_1"]
    await drive.finish(lease)
    await drive.run("m2", nonce="n2")
    async with drive.only_a_warning("stale_turn"):
        assert await drive.interrupt(turn="t_1") == ["STALE_TURN", "t_2"]
    assert "ctl_turn" not in await drive.head()


async def test_a_refusal_that_is_repeated_warns_once(drive: Driver) -> None:
    """Hole 3: asked again because the reply was lost, it is one request and one warning."""
    await drive.run("m1")
    async with drive.only_a_warning("stale_turn"):
        for _ in range(3):
            assert await drive.interrupt(turn="t_9") == ["STALE_TURN", "t_1"]


async def test_an_interrupt_is_recorded_outside_the_inbox_and_alerts_the_holder(
    drive: Driver,
) -> None:
    """Holes 11 and 12."""
    lease = await drive.run("m1")
    reply = accepted(await drive.interrupt("i1"))
    assert (reply["n"], reply["turn"], reply["status"]) == ("0", "t_1", "held")
    head = await drive.head()
    assert [head[f"ctl_{name}"] for name in ("turn", "kind", "sub", "epoch")] == [
        "t_1", "interrupt", "i1", "1",
    ]  # fmt: skip
    assert (await drive.renew(lease))[0][2] == "1"
    assert list(await drive.bodies("inbox")) == [1]


async def test_a_second_interrupt_of_a_turn_settles_at_once_as_merged(drive: Driver) -> None:
    """Hole 12."""
    await drive.run("m1")
    await drive.interrupt("i1")
    assert await drive.interrupt("i2") == ["MERGED", "0", "t_1"]
    assert (await drive.receipt("i2") or {})["ending"] == "completed"
    head = await drive.head()
    assert (head["ctl_sub"], head["ctl_epoch"]) == ("i1", "1")
    async with drive.unchanged():
        assert (await drive.interrupt("i2"))[0] == "DUPLICATE"


async def test_an_interrupt_wakes_a_parked_turn(drive: Driver) -> None:
    await drive.park("w1")
    assert accepted(await drive.interrupt())["status"] == "ready"
    assert await drive.indexes() == {"ready"}


async def test_an_interrupt_of_a_turn_beats_the_back_off_of_unable_workers(drive: Driver) -> None:
    """Hole 44: `not_before` yields to a control."""
    lease = await drive.run("m1")
    await drive.give_up(lease, GiveUp.UNABLE)
    assert await drive.indexes() == {"timers"}
    assert accepted(await drive.interrupt())["status"] == "ready"


async def test_a_body_over_the_size_is_too_big(drive: Driver) -> None:
    await drive.submit("m1")
    async with drive.unchanged():
        assert await drive.submit("m2", body="12345", max_size=4) == ["TOO_BIG", "5", "4"]


async def test_a_full_inbox_is_busy(drive: Driver) -> None:
    await drive.submit("m1")
    await drive.submit("m2")
    async with drive.unchanged():
        assert await drive.submit("m3", max_depth=2) == ["BUSY", "inbox", "2", "2", "1000"]
    assert (await drive.submit("m3", max_depth=3))[0] == "ACCEPTED"


async def test_what_a_turn_holds_counts_for_the_depth(drive: Driver) -> None:
    await drive.run("m1")
    async with drive.unchanged():
        assert (await drive.submit("m2", max_depth=1))[0] == "BUSY"


async def test_an_inbox_full_of_bytes_is_busy(drive: Driver) -> None:
    await drive.submit("m1", body="1234")
    async with drive.unchanged():
        reply = await drive.submit("m2", body="12345", max_bytes=8)
    assert reply == ["BUSY", "inbox bytes", "4", "8", "1000"]
    assert (await drive.submit("m2", body="1234", max_bytes=8))[0] == "ACCEPTED"


async def test_a_late_copy_is_not_accepted(drive: Driver) -> None:
    """Hole 3, F4: a refusal that was told stays true."""
    asked = Submit(SESSION, "m1", "d", "turn", "b", Create(drive.route, "assistant"))
    settings = drive.stores.producer.settings
    request = requests.submit(
        drive.fleet.keys, settings, asked, route=drive.route, not_after_ms=await drive.now() - 1
    )
    await drive.submit("m2")
    async with drive.unchanged():
        assert await drive.call(request) == ["LATE"]


# Retention of receipts: answer (h)


async def test_pending_receipts_are_never_forgotten(drive: Driver) -> None:
    """Hole 35: the age index holds settled ones only."""
    await drive.submit("m1")
    assert await drive.order("ready") == [SESSION]
    assert await drive.redis("ZRANGE", drive.key("settled"), 0, -1) == ["|"]
    await drive.submit("m2", window=0)
    assert (await drive.submit("m1", window=0))[0] == "DUPLICATE"


async def test_settled_receipts_leave_after_the_window_a_few_at_a_time(drive: Driver) -> None:
    ids = [f"m{i}" for i in range(10)]
    await drive.finish(await drive.run(*ids))
    for id in ids:
        await drive.redis("ZADD", drive.key("settled"), 1, id)
    await drive.submit("new")
    left = [id for id in ids if await drive.receipt(id) is not None]
    assert len(left) == 2
    await drive.submit("newer")
    assert await drive.redis("ZCARD", drive.key("settled")) == 1


async def fill_receipts(drive: Driver, ids: list[str], ended_ms: int) -> None:
    """Settled receipts, as 4 096 ended submissions would leave them."""
    await drive.submit("m1")
    receipts: list[str] = []
    scores: list[str] = []
    for id in ids:
        receipts += [id, f"d:{id}|0|0|{ended_ms}|completed||0|{ended_ms}"]
        scores += [str(ended_ms), id]
    await drive.redis("HSET", drive.key("receipts"), *receipts)
    await drive.redis("ZADD", drive.key("settled"), *scores)


async def test_too_many_young_receipts_are_busy_but_let_answers_in(drive: Driver) -> None:
    """Holes 6 and 35: nothing that a turn waits for is kept out."""
    await drive.park("w1")
    now = await drive.now()
    await fill_receipts(drive, [uuid7(now + i) for i in range(4096)], now)
    async with drive.unchanged():
        assert (await drive.submit("m2"))[:4] == ["BUSY", "receipts", "4096", "4096"]
    assert (await drive.answer("w1"))[0] == "ACCEPTED"
    assert (await drive.interrupt("i1"))[0] == "ACCEPTED"
    assert (await drive.interrupt("i2"))[:2] == ["BUSY", "receipts"]


async def test_receipts_that_leave_early_raise_the_floor_below_which_ids_are_too_old(
    drive: Driver,
) -> None:
    now = await drive.now()
    ids = [uuid7(now - 60 * MINUTE + i) for i in range(4096)]
    await fill_receipts(drive, ids, now - 20 * MINUTE)
    assert (await drive.submit("m2"))[0] == "ACCEPTED"
    floor = int((await drive.head())["dedup_floor"])
    assert floor == now - 60 * MINUTE + 7
    async with drive.unchanged():
        assert await drive.submit(ids[0]) == ["TOO_OLD"]
        assert (await drive.submit(ids[-1]))[0] == "DUPLICATE"
    assert (await drive.submit(uuid7(floor)))[0] == "ACCEPTED"


async def test_a_floor_never_rises_above_the_retry_horizon(drive: Driver) -> None:
    """One id from a fast clock cannot keep everybody out."""
    now = await drive.now()
    await fill_receipts(drive, [uuid7(now + 5 * MINUTE)] * 1, now - 20 * MINUTE)
    ids = [uuid7(now + 5 * MINUTE + i) for i in range(1, 4096)]
    await fill_receipts(drive, ids, now - 20 * MINUTE)
    await drive.submit("m2")
    assert int((await drive.head())["dedup_floor"]) <= await drive.now() - 10 * MINUTE


async def test_ids_without_a_time_leave_only_after_the_window(drive: Driver) -> None:
    """They cannot be floored, so they are a limit."""
    now = await drive.now()
    await fill_receipts(drive, [f"telegram:{i}" for i in range(4096)], now - 20 * MINUTE)
    async with drive.unchanged():
        assert (await drive.submit("m2"))[:2] == ["BUSY", "receipts"]
    assert (await drive.submit("m2", window=10 * MINUTE))[0] == "ACCEPTED"


async def test_an_id_from_the_future_is_refused(drive: Driver) -> None:
    await drive.submit("m1")
    now = await drive.now()
    async with drive.unchanged():
        assert await drive.submit(uuid7(now + 11 * MINUTE)) == ["SKEW"]
    assert (await drive.submit(uuid7(now + 9 * MINUTE)))[0] == "ACCEPTED"
    assert (await drive.submit(new_submission_id()))[0] == "ACCEPTED"


# Policies


async def test_reject_is_busy_while_anything_runs_or_waits(drive: Driver) -> None:
    assert (await drive.submit("m1", policy="reject"))[0] == "ACCEPTED"
    async with drive.unchanged():
        assert (await drive.submit("m2", policy="reject"))[:3] == ["BUSY", "turn", "1"]
    lease = await drive.hold()
    await drive.commit(lease, "start", take=(1,))
    async with drive.unchanged():
        assert (await drive.submit("m2", policy="reject"))[:2] == ["BUSY", "turn"]
    await drive.finish(lease)
    assert (await drive.submit("m2", policy="reject"))[0] == "ACCEPTED"


async def test_reject_passes_what_waits_for_a_time_of_its_own(drive: Driver) -> None:
    await drive.submit("later", delay_ms=60 * MINUTE)
    assert (await drive.submit("m1", policy="reject"))[0] == "ACCEPTED"
    async with drive.unchanged():
        assert (await drive.submit("m2", policy="reject"))[:3] == ["BUSY", "turn", "1"]


async def test_reject_is_busy_while_messages_are_gathered(drive: Driver) -> None:
    await drive.submit(
        "m1", policy="debounce", key="debounce", quiet_ms=60 * MINUTE, max_wait_ms=60 * MINUTE
    )
    async with drive.unchanged():
        assert (await drive.submit("m2", policy="reject"))[:3] == ["BUSY", "turn", "1"]


async def test_latest_replaces_what_waits_under_its_key_and_nothing_else(drive: Driver) -> None:
    """Holes 14 and 55: what a turn holds is never taken from it."""
    await drive.submit("held", policy="latest", key="typing")
    lease = await drive.run("held")
    await drive.submit("old", policy="latest", key="typing")
    await drive.submit("other", policy="latest", key="else")
    reply = accepted(await drive.submit("new", policy="latest", key="typing"))
    assert reply["replaced"] == ["old"]
    assert (await drive.receipt("old") or {})["ending"] == "superseded"
    event = (await drive.journal())[-1]
    assert (event["type"], event["sub"], event["body"]) == (
        "submission_superseded", "old", '{"by":"new"}',
    )  # fmt: skip
    assert (await drive.receipt("old") or {})["end_seq"] == event["seq"]
    assert sorted(await drive.work()) == ["1", "3", "4"]
    assert sorted(await drive.bodies("inbox")) == [1, 3, 4]
    await drive.finish(lease)


@pytest.mark.parametrize("policy", ["interrupt", "rollback"])
async def test_a_message_may_stop_the_turn_and_wait_in_one_script(
    drive: Driver, policy: str
) -> None:
    lease = await drive.run("m1")
    reply = accepted(await drive.submit("m2", policy=policy))
    assert (reply["n"], reply["status"]) == ("2", "held")
    head = await drive.head()
    assert (head["ctl_turn"], head["ctl_kind"], head.get("ctl_sub")) == ("t_1", policy, None)
    assert (await drive.renew(lease))[0][2] == "1"


async def test_a_control_may_only_rise(drive: Driver) -> None:
    """Answer (c): interrupt, then rollback; never back."""
    await drive.run("m1")
    await drive.submit("m2", policy="interrupt")
    await drive.submit("m3", policy="rollback")
    await drive.submit("m4", policy="interrupt")
    head = await drive.head()
    assert (head["ctl_kind"], head["ctl_epoch"]) == ("rollback", "3")


async def test_interrupt_without_a_turn_is_an_ordinary_message(drive: Driver) -> None:
    assert accepted(await drive.submit("m1", policy="interrupt"))["status"] == "ready"
    assert "ctl_turn" not in await drive.head()


async def test_a_steer_waits_for_the_running_turn_and_alerts_nobody(drive: Driver) -> None:
    """What runs is not stopped for it, whose control waits or not."""
    lease = await drive.run("m1")
    reply = accepted(await drive.submit("m2", policy="steer"))
    assert (await drive.work())[reply["n"]][0] == "steer"
    assert (await drive.renew(lease))[0][:1] + (await drive.renew(lease))[0][2:3] == ["OK", "0"]
    assert await drive.redis("HEXISTS", drive.shared("alerts"), SESSION) == 0
    await drive.interrupt()
    await drive.submit("m3", policy="steer")
    assert (await drive.renew(lease))[0][2] == "1"


async def test_a_join_is_marked_for_joining(drive: Driver) -> None:
    reply = accepted(await drive.submit("m1", policy="join"))
    assert (await drive.work())[reply["n"]][0] == "join"


async def test_debounce_gathers_until_quiet_but_not_for_ever(drive: Driver) -> None:
    """Hole 56: capped at the first message's time plus the longest wait."""
    given: dict[str, Any] = {
        "policy": "debounce",
        "key": "burst",
        "quiet": 40_000,
        "max_wait": 50_000,
    }
    first = accepted(await drive.submit("m1", **given))
    assert (first["status"], await drive.indexes()) == ("idle", {"timers"})
    arrived = int(fields_at(await drive.redis("XRANGE", drive.key("inbox"), "-", "+")))
    assert float((await drive.work())["1"][1]) >= arrived + 40_000
    await drive.submit("m2", **{**given, "quiet": 55_000})
    work = await drive.work()
    assert work["1"][1] == work["2"][1] == str(arrived + 50_000)
    assert await drive.score("timers") == arrived + 50_000


async def test_debounce_gathers_nothing_but_what_may_share_its_turn(drive: Driver) -> None:
    """Not a message of the same key that wants a turn of its own, nor one of another key, nor what
    a turn has given back."""
    given: dict[str, Any] = {"policy": "debounce", "quiet": 40_000, "max_wait": 50_000}
    await drive.submit("back", policy="join", key="burst")
    lease = await drive.run("back")
    await drive.finish(lease, end="requeue")
    await drive.submit("plain", key="burst")
    await drive.submit("other", **given, key="else")
    before = await drive.work()
    accepted(await drive.submit("m4", **given, key="burst"))
    work = await drive.work()
    assert {n: work[n] for n in before} == before
    assert int(work["4"][1]) > await drive.now()


DEFAULTS = {
    "assistant": Wish("debounce", "debounce", 40_000, 50_000),
    "other": Wish("steer"),
}


@pytest.mark.parametrize(
    ("agent", "created_by", "expected"),
    [
        ("assistant", "assistant", ("join", "debounce")),
        ("other", "other", ("steer", "")),
        ("assistant", "other", ("steer", "")),
        ("unheard", "unheard", ("turn", "")),
    ],
)
async def test_without_a_policy_the_agent_of_the_session_decides(
    drive: Driver, agent: str, created_by: str, expected: tuple[str, str]
) -> None:
    """Of the session, not of whom the submission names: that is read when one is created."""
    await drive.submit("m1", create=Create(route=drive.route, agent=created_by))
    accepted(
        await drive.submit(
            "m2", policy="", defaults=DEFAULTS, create=Create(route=drive.route, agent=agent)
        )
    )
    kind, due, _, _, _, key, _ = (await drive.work())["2"]
    assert (kind, key) == expected
    assert (int(due) > await drive.now()) == (key == "debounce")


async def test_a_named_policy_wins_over_the_agents(drive: Driver) -> None:
    await drive.submit("m1", policy="enqueue", defaults=DEFAULTS)
    assert (await drive.work())["1"][0] == "turn"


def fields_at(entries: list[list[list[str]]]) -> str:
    """The acceptance time of the first inbox entry."""
    flat = entries[0][1]
    return flat[flat.index("at") + 1]


# Where the session goes


async def test_a_scheduled_message_waits_in_the_timers(drive: Driver) -> None:
    due = await drive.now() + LATER_MS
    assert accepted(await drive.submit("m1", due_ms=due))["status"] == "idle"
    assert (await drive.indexes(), await drive.score("timers")) == ({"timers"}, due)
    assert accepted(await drive.submit("m2"))["status"] == "ready"
    assert await drive.indexes() == {"ready"}


async def test_a_quarantined_session_accepts_and_says_so(drive: Driver) -> None:
    """Hole 64."""
    await drive.submit("m1")
    await drive.quarantine()
    assert accepted(await drive.submit("m2"))["status"] == "quarantined"
    assert await drive.indexes() == {"quarantine"}
    async with drive.unchanged():
        assert (await drive.submit("m3", max_depth=2))[0] == "BUSY"


async def test_position_counts_what_waits_before(drive: Driver) -> None:
    await drive.run("m1")
    assert accepted(await drive.submit("m2"))["position"] == "0"
    assert accepted(await drive.submit("m3"))["position"] == "1"
    assert (await drive.submit("m3"))[8] == "1"


async def test_only_messages_choose_the_priority(drive: Driver) -> None:
    await drive.submit("m1", priority=2)
    assert await drive.score("ready") == -16_000
    lease = await drive.hold()
    await drive.commit(lease, "start", take=(1,))
    await drive.wait_for(lease)
    await drive.answer("w1")
    assert (await drive.head())["priority"] == "2"
    await drive.interrupt()
    assert (await drive.head())["priority"] == "2"


async def test_nothing_passes_a_submission_that_was_sent_back(drive: Driver) -> None:
    """Something in the middle of a pipeline may send one back: the next one waits for it."""
    accepted(await drive.submit("m0"))
    async with drive.unchanged():
        assert await drive.submit("m2", after="m1") == ["ORDER"]
    accepted(await drive.submit("m1"))
    accepted(await drive.submit("m2", after="m1"))
    assert (await drive.submit("m2", after="m9"))[0] == "DUPLICATE"


async def test_a_steer_wakes_no_parked_turn(drive: Driver) -> None:
    """It is taken with the step with which the turn goes on."""
    await drive.park("w1")
    assert (await drive.submit("s1", policy="steer"))[0] == "ACCEPTED"
    assert (await drive.status(), await drive.indexes()) == ("parked", set())
    await drive.answer("w1", "a1")
    assert await drive.status() == "ready"

"""Schedules through the store, with Redis's time as the leader is told it: each time once."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from changeover_shared._errors import StoreUnavailable
from changeover_shared._messages import CheckedMessage
from changeover_shared._ops import MessageOp
from changeover_shared._schedules import Missed, Planned, Rhythm, next_after
from changeover_shared._store.records import Create, Submit
from changeover_shared._store.schedules import DUE_AT_ONCE, Stored
from changeover_worker._process.firing import Firing
from tests.support.driving import Driver
from tests.support.working import capture

SECOND, MINUTE, HOUR = 1000, 60_000, 3_600_000
BERLIN, NEW_YORK, SYDNEY = "Europe/Berlin", "America/New_York", "Australia/Sydney"


def planned(times: Rhythm, *, missed: Missed = "once", **options: str) -> Planned:
    said = CheckedMessage(op=MessageOp(text="hello"), agent="bot", queue="bot")
    return Planned(rhythm=times, missed=missed, message=said.model_copy(update=options))


class Clock:
    """A leader of the sweep, and the schedules that it serves."""

    def __init__(self, drive: Driver) -> None:
        self.drive = drive
        self.log, self.entries = capture()
        self.firing = Firing(drive.stores.worker, self.log)
        self.schedules = drive.stores.producer.schedules

    async def keep(self, name: str, plan: Planned, since_ms: int, session: str = "web:1") -> int:
        """Keep a schedule that was made at a time."""
        return await self.schedules.keep(name, session, plan, next_after(plan.rhythm, since_ms))

    async def sent(self, session: str = "web:1") -> list[str]:
        """The ids of the messages of a session, in order."""
        store = self.drive.stores.producer
        return [one.submission_id for one in await store.inbox(session)]

    async def due(self, name: str) -> tuple[int, int]:
        """When a schedule is due, and when it is looked at."""
        (_, due_ms, _, _), look_ms = (await self.drive.schedules())[name]
        return int(due_ms), look_ms

    def logged(self, event: str) -> list[dict[str, object]]:
        return [
            {k: v for k, v in one.items() if k not in ("event", "log_level")}
            for one in self.entries.entries
            if one["event"] == event
        ]


@pytest.fixture
def clock(drive: Driver) -> Clock:
    return Clock(drive)


def every(span_ms: int, anchor_ms: int = 0) -> Rhythm:
    return Rhythm(every_ms=span_ms, anchor_ms=anchor_ms)


NIGHTS = {
    "Berlin, spring": (
        BERLIN,
        "2026-03-29T00:30",
        "30 2 * * *",
        ["2026-03-29T03:00+02:00"],
        ["2026-03-29T01:00+01:00", "2026-03-29T03:00+02:00", "2026-03-29T04:00+02:00"],
    ),
    "Berlin, autumn": (
        BERLIN,
        "2026-10-25T00:30",
        "30 2 * * *",
        ["2026-10-25T02:30+02:00"],
        [
            "2026-10-25T01:00+02:00",
            "2026-10-25T02:00+02:00",
            "2026-10-25T02:00+01:00",
            "2026-10-25T03:00+01:00",
            "2026-10-25T04:00+01:00",
        ],
    ),
    "New York, spring": (
        NEW_YORK,
        "2026-03-08T00:30",
        "30 2 * * *",
        ["2026-03-08T03:00-04:00"],
        ["2026-03-08T01:00-05:00", "2026-03-08T03:00-04:00", "2026-03-08T04:00-04:00"],
    ),
    "New York, autumn": (
        NEW_YORK,
        "2026-11-01T00:30",
        "30 1 * * *",
        ["2026-11-01T01:30-04:00"],
        [
            "2026-11-01T01:00-04:00",
            "2026-11-01T01:00-05:00",
            "2026-11-01T02:00-05:00",
            "2026-11-01T03:00-05:00",
            "2026-11-01T04:00-05:00",
        ],
    ),
    "Sydney, spring": (
        SYDNEY,
        "2026-10-04T00:30",
        "30 2 * * *",
        ["2026-10-04T03:00+11:00"],
        ["2026-10-04T01:00+10:00", "2026-10-04T03:00+11:00", "2026-10-04T04:00+11:00"],
    ),
    "Sydney, autumn": (
        SYDNEY,
        "2026-04-05T00:30",
        "30 2 * * *",
        ["2026-04-05T02:30+11:00"],
        [
            "2026-04-05T01:00+11:00",
            "2026-04-05T02:00+11:00",
            "2026-04-05T02:00+10:00",
            "2026-04-05T03:00+10:00",
            "2026-04-05T04:00+10:00",
        ],
    ),
}
"""Zone, the evening's time, a cron of one time of the day, its runs, and those of each hour."""


@pytest.mark.parametrize("night", NIGHTS)
async def test_a_night_in_which_the_clock_changes(clock: Clock, night: str) -> None:
    """Each run, by the local time in its id, as the documentation says."""
    tz, since, cron, fixed, hourly = NIGHTS[night]
    zone = ZoneInfo(tz)
    begin = datetime.fromisoformat(since).replace(tzinfo=zone)
    begin_ms = round(begin.timestamp() * 1000)
    await clock.keep("fixed", planned(Rhythm(cron=cron, tz=tz)), begin_ms, "fixed")
    await clock.keep("hourly", planned(Rhythm(cron="0 * * * *", tz=tz)), begin_ms, "hourly")
    end_ms = round((begin + timedelta(hours=4)).timestamp() * 1000)
    for now_ms in range(begin_ms, end_ms, 15 * MINUTE):
        await clock.firing.look(now_ms + SECOND)

    def local(submission: str) -> str:
        at_ms = int(submission.rpartition(":")[2])
        return datetime.fromtimestamp(at_ms / 1000, zone).isoformat("T", "minutes")

    assert [local(one) for one in await clock.sent("fixed")] == fixed
    assert [local(one) for one in await clock.sent("hourly")] == hourly
    assert clock.logged("schedule_failed") == []


async def test_a_time_is_served_once_by_any_number_of_leaders(clock: Clock) -> None:
    due = await clock.keep("daily", planned(every(HOUR)), 0)
    leaders = [Firing(clock.drive.stores.worker, clock.log) for _ in range(4)]
    await asyncio.gather(*(one.look(due + SECOND) for one in leaders))
    await asyncio.gather(*(one.look(due + 2 * SECOND) for one in leaders))
    assert await clock.sent() == [f"schedule:daily:{due}"]
    assert await clock.due("daily") == (2 * HOUR, 2 * HOUR)
    assert clock.logged("schedule_fired") == [
        {"schedule": "daily", "session": "web:1", "submission": f"schedule:daily:{due}",
         "late_ms": SECOND}
    ]  # fmt: skip


async def test_a_leader_that_dies_between_the_two_is_followed_by_one_that_repeats_it(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    due = await clock.keep("daily", planned(every(HOUR)), 0)

    async def die(self: object, seen: Stored, *_: object, **__: object) -> bool:
        raise asyncio.CancelledError

    with monkeypatch.context() as broken:
        broken.setattr(type(clock.schedules), "move", die)
        with pytest.raises(asyncio.CancelledError):
            await clock.firing.look(due)
    assert await clock.sent() == [f"schedule:daily:{due}"]
    assert await clock.due("daily") == (due, due)
    await Firing(clock.drive.stores.worker, clock.log).look(due + SECOND)
    assert await clock.sent() == [f"schedule:daily:{due}"]
    assert (await clock.due("daily"))[0] == 2 * HOUR


async def test_a_leader_that_has_slept_moves_nothing_back(clock: Clock) -> None:
    """It has read a time that others have served since."""
    due = await clock.keep("daily", planned(every(HOUR)), 0)
    (asleep,) = await clock.schedules.due(due)
    await clock.firing.look(due)
    await clock.firing.look(2 * HOUR)
    await clock.firing._serve(asleep, due + SECOND)
    assert await clock.sent() == [f"schedule:daily:{due}", f"schedule:daily:{2 * HOUR}"]
    assert (await clock.due("daily"))[0] == 3 * HOUR


async def test_times_that_were_missed_are_one_run(clock: Clock) -> None:
    await clock.keep("all", planned(every(HOUR)), 0)
    await clock.keep("none", planned(every(HOUR), missed="skip"), 0, "web:2")
    now = 5 * HOUR + 10 * MINUTE
    await clock.firing.look(now)
    assert await clock.sent() == [f"schedule:all:{HOUR}"]
    assert await clock.sent("web:2") == []
    assert (await clock.due("all"), await clock.due("none")) == ((6 * HOUR,) * 2,) * 2
    assert clock.logged("schedule_skipped") == [
        {"schedule": "none", "session": "web:2", "late_ms": now - HOUR}
    ]
    await clock.firing.look(6 * HOUR)
    assert await clock.sent() == [f"schedule:all:{HOUR}", f"schedule:all:{6 * HOUR}"]
    assert await clock.sent("web:2") == [f"schedule:none:{6 * HOUR}"]


async def test_of_missed_times_the_one_that_is_due_now_is_not_skipped(clock: Clock) -> None:
    await clock.keep("none", planned(every(HOUR), missed="skip"), 0)
    await clock.firing.look(5 * HOUR + SECOND)
    await clock.firing.look(5 * HOUR + 2 * SECOND)
    assert await clock.sent() == [f"schedule:none:{5 * HOUR}"]


async def test_a_full_session_is_tried_again_and_holds_nobody_up(clock: Clock) -> None:
    """Somebody is told once; the time that counts stays the one that was due."""
    store = clock.drive.stores.producer
    for k in range(64):
        await store.submit(Submit("full", f"m{k}", "d", "turn", "body", Create("bot@1", "bot")))
    await clock.keep("stuck", planned(every(HOUR)), 0, "full")
    await clock.keep("free", planned(every(HOUR)), 0, "web:1")
    await clock.firing.look(HOUR)
    assert await clock.sent() == [f"schedule:free:{HOUR}"]
    assert await clock.due("stuck") == (HOUR, HOUR + SECOND)
    await clock.firing.look(HOUR + SECOND)
    await clock.firing.look(HOUR + 40 * SECOND)
    assert await clock.due("stuck") == (HOUR, HOUR + 50 * SECOND)
    (told,) = clock.logged("schedule_failed")
    assert (told["schedule"], told["session"], told["code"]) == ("stuck", "full", "busy")
    await store.cancel("full", "m0")
    await clock.firing.look(HOUR + 49 * SECOND)
    assert len(await clock.sent("full")) == 63
    await clock.firing.look(HOUR + 50 * SECOND)
    assert (await clock.sent("full"))[-1] == f"schedule:stuck:{HOUR}"
    assert await clock.due("stuck") == (2 * HOUR, 2 * HOUR)


async def test_what_will_never_be_taken_is_told_and_left_out(clock: Clock) -> None:
    drive = clock.drive
    lease = await drive.run("m1")
    await drive.close(lease)
    await clock.keep("closed", planned(every(HOUR)), 0, drive.session)
    await clock.firing.look(HOUR)
    assert await clock.due("closed") == (2 * HOUR, 2 * HOUR)
    (told,) = clock.logged("schedule_failed")
    assert (told["code"], told["due"]) == ("closed", HOUR)
    await clock.firing.look(2 * HOUR)
    assert [one["due"] for one in clock.logged("schedule_failed")] == [HOUR, 2 * HOUR]


async def test_one_that_cannot_be_read_here_is_put_off_for_somebody_who_can(
    clock: Clock,
) -> None:
    await clock.drive.schedule("newer", due_ms=HOUR, body="{}")
    await clock.keep("free", planned(every(HOUR)), 0)
    await clock.firing.look(HOUR)
    assert await clock.sent() == [f"schedule:free:{HOUR}"]
    assert await clock.due("newer") == (HOUR, HOUR + SECOND)
    assert [one["code"] for one in clock.logged("schedule_failed")] == ["format_too_new"]
    assert (await clock.drive.schedules())["newer"][0][3] == "{}"


async def test_a_session_that_does_not_answer_holds_nobody_up(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = clock.drive.stores.producer
    submit = store.submit

    async def silent_for_one(asked: Submit, *, timeout_s: float) -> object:
        if asked.session_id == "silent":
            raise StoreUnavailable(reason="no answer")
        return await submit(asked, timeout_s=timeout_s)

    monkeypatch.setattr(clock.drive.stores.worker.producer, "submit", silent_for_one)
    await clock.keep("a", planned(every(HOUR)), 0, "silent")
    await clock.keep("b", planned(every(HOUR)), 0)
    await clock.firing.look(HOUR)
    assert await clock.sent() == [f"schedule:b:{HOUR}"]
    assert await clock.due("a") == (HOUR, HOUR + SECOND)


async def test_more_than_are_read_at_once_are_all_served(clock: Clock) -> None:
    names = [f"s{k}" for k in range(2 * DUE_AT_ONCE + 1)]
    for name in names:
        await clock.keep(name, planned(every(HOUR)), 0, f"web:{name}")
    looks = 0
    while {due for (_, due, _, _), _ in (await clock.drive.schedules()).values()} != {
        str(2 * HOUR)
    }:
        # However slow the server is, each look serves some.
        assert looks < len(names)
        await clock.firing.look(HOUR + looks * MINUTE)
        looks += 1
    for name in names:
        assert await clock.sent(f"web:{name}") == [f"schedule:{name}:{HOUR}"]


async def test_an_entry_of_the_index_is_no_right(clock: Clock) -> None:
    due = await clock.keep("daily", planned(every(HOUR)), 0)
    await clock.drive.redis("ZADD", clock.drive.fleet.keys.schedules.due, 1, "daily")
    await clock.firing.look(due - 1)
    assert await clock.sent() == []
    assert await clock.due("daily") == (due, due)


async def test_what_it_sends_is_what_the_schedule_says(clock: Clock) -> None:
    plan = planned(every(HOUR), policy="steer", tenant="acme", context='{"chat":"1"}')
    due = await clock.keep("daily", plan, 0)
    await clock.firing.look(due)
    snapshot = await clock.drive.stores.producer.snapshot("web:1")
    assert snapshot is not None
    head = snapshot.head
    assert (head.agent, head.route, head.tenant, head.context) == (
        "bot", "bot@1", "acme", '{"chat":"1"}',
    )  # fmt: skip
    (waiting,) = snapshot.work.waiting
    assert (waiting.kind, waiting.submission_id) == ("steer", f"schedule:daily:{due}")
    (event,) = await clock.drive.stores.producer.journal("web:1")
    assert (event.type, event.submission_id) == ("message", f"schedule:daily:{due}")

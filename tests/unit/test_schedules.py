"""When schedules are due: cron in time zones, nights in which clocks change, and `every`."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim

from changeover_shared._errors import Invalid
from changeover_shared._messages import CheckedMessage
from changeover_shared._ops import MessageOp
from changeover_shared._schedules import (
    LATE_MS,
    Decision,
    Planned,
    Rhythm,
    decide,
    next_after,
    rhythm,
    submission_of,
)

NOON = 1_796_040_000_000
MINUTE = 60_000
DAY = 86_400_000

BERLIN, NEW_YORK, SYDNEY = "Europe/Berlin", "America/New_York", "Australia/Sydney"


def ms(text: str, tz: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(tz)).timestamp() * 1000)


def runs(cron: str, tz: str, since: str, until: str) -> list[str]:
    """Every run between two times of a clock on the wall, as that clock shows it."""
    found, at, end = [], ms(since, tz), ms(until, tz)
    times = Rhythm(cron=cron, tz=tz)
    while (at := next_after(times, at)) < end:
        found.append(datetime.fromtimestamp(at / 1000, ZoneInfo(tz)).isoformat("T", "minutes"))
    return found


# The clock leaps from 02:00 to 03:00


@pytest.mark.parametrize(
    ("tz", "night", "before", "after"),
    [
        (BERLIN, "2026-03-29", "+01:00", "+02:00"),
        (NEW_YORK, "2026-03-08", "-05:00", "-04:00"),
        (SYDNEY, "2026-10-04", "+10:00", "+11:00"),
    ],
)
def test_a_time_that_the_clock_leaps_over_runs_right_after_the_leap(
    tz: str, night: str, before: str, after: str
) -> None:
    since, until = f"{night}T00:30", f"{night}T05:30"
    assert runs("30 2 * * *", tz, since, until) == [f"{night}T03:00{after}"]
    assert runs("0 2 * * *", tz, since, until) == [f"{night}T03:00{after}"]
    assert runs("0,15,30 2 * * *", tz, since, until) == [f"{night}T03:00{after}"]
    assert runs("0 2,3 * * *", tz, since, until) == [f"{night}T03:00{after}"]
    assert runs("30 1 * * *", tz, since, until) == [f"{night}T01:30{before}"]
    assert runs("0 * * * *", tz, since, until) == [
        f"{night}T01:00{before}",
        f"{night}T03:00{after}",
        f"{night}T04:00{after}",
        f"{night}T05:00{after}",
    ]
    assert runs("*/30 1-3 * * *", tz, since, until) == [
        f"{night}T01:00{before}",
        f"{night}T01:30{before}",
        f"{night}T03:00{after}",
        f"{night}T03:30{after}",
    ]
    assert runs("*/15 2 * * *", tz, since, until) == []


# It goes back over an hour, which comes twice


@pytest.mark.parametrize(
    ("tz", "night", "hour", "first", "second"),
    [
        (BERLIN, "2026-10-25", 2, "+02:00", "+01:00"),
        (NEW_YORK, "2026-11-01", 1, "-04:00", "-05:00"),
        (SYDNEY, "2026-04-05", 2, "+11:00", "+10:00"),
    ],
)
def test_a_time_that_comes_twice_runs_the_first_time(
    tz: str, night: str, hour: int, first: str, second: str
) -> None:
    since, until = f"{night}T00:30", f"{night}T04:30"
    twice, next_hour = f"{night}T0{hour}", f"{night}T0{hour + 1}"
    assert runs(f"30 {hour} * * *", tz, since, until) == [f"{twice}:30{first}"]
    assert runs(f"0,30 {hour} * * *", tz, since, until) == [
        f"{twice}:00{first}",
        f"{twice}:30{first}",
    ]
    assert runs(f"30 {hour + 1} * * *", tz, since, until) == [f"{next_hour}:30{second}"]
    assert runs(f"*/30 {hour} * * *", tz, since, until) == [
        f"{twice}:00{first}",
        f"{twice}:30{first}",
        f"{twice}:00{second}",
        f"{twice}:30{second}",
    ]
    hourly = runs("0 * * * *", tz, f"{night}T0{hour}:00", until)
    assert hourly[:2] == [f"{twice}:00{second}", f"{next_hour}:00{second}"]


def test_the_days_around_such_a_night_are_days() -> None:
    assert runs("30 2 * * *", BERLIN, "2026-03-28T00:00", "2026-03-31T00:00") == [
        "2026-03-28T02:30+01:00",
        "2026-03-29T03:00+02:00",
        "2026-03-30T02:30+02:00",
    ]
    assert runs("30 1 * * *", NEW_YORK, "2026-10-31T00:00", "2026-11-03T00:00") == [
        "2026-10-31T01:30-04:00",
        "2026-11-01T01:30-04:00",
        "2026-11-02T01:30-05:00",
    ]


def test_a_fixed_time_asked_for_in_the_second_of_two_hours_is_that_of_the_next_day() -> None:
    """The first of the two has passed."""
    after = round(datetime.fromisoformat("2026-10-25T02:10+01:00").timestamp() * 1000)
    found = next_after(Rhythm(cron="30 2 * * *", tz=BERLIN), after)
    assert datetime.fromtimestamp(found / 1000, ZoneInfo(BERLIN)).isoformat() == (
        "2026-10-26T02:30:00+01:00"
    )


def watched(cron: str, tz: str, since: datetime, hours: int) -> list[datetime]:
    """Every run within some hours, by who looks at the clock on the wall each minute."""
    minute, hour, *_ = cron.split()
    of_the_day = not (minute.startswith("*") or hour.startswith("*"))
    one = timedelta(minutes=1)
    found: set[datetime] = set()
    seen: set[datetime] = set()

    def matches(wall: datetime) -> bool:
        return next(CronSim(cron, wall - one)) == wall

    last = since.astimezone(ZoneInfo(tz)).replace(tzinfo=None) - one
    for number in range(hours * 60):
        at = since + number * one
        wall = at.astimezone(ZoneInfo(tz)).replace(tzinfo=None, fold=0)
        leapt = last + one
        while of_the_day and leapt < wall:
            if matches(leapt):
                found.add(at)
            leapt += one
        if matches(wall) and not (of_the_day and wall in seen):
            found.add(at)
        seen.add(wall)
        last = wall
    return sorted(found)


@pytest.mark.parametrize(
    ("tz", "change"),
    [
        (BERLIN, "2027-03-28T01:00"),
        (BERLIN, "2026-10-25T01:00"),
        (SYDNEY, "2027-04-03T16:00"),
        ("Australia/Lord_Howe", "2027-04-03T15:00"),
        ("Australia/Lord_Howe", "2026-10-03T15:30"),
        ("Antarctica/Troll", "2027-03-28T01:00"),
        ("Antarctica/Troll", "2026-10-25T01:00"),
        ("America/Santiago", "2027-04-04T03:00"),
        ("America/Santiago", "2026-09-06T04:00"),
        ("Pacific/Chatham", "2026-09-26T14:00"),
    ],
)
def test_around_every_change_it_is_as_somebody_would_say_who_watched_the_clock(
    tz: str, change: str
) -> None:
    """Also where it is changed by half an hour, by two, or at midnight."""
    moment, hour = datetime.fromisoformat(change).replace(tzinfo=UTC), timedelta(hours=1)
    around = {at.astimezone(ZoneInfo(tz)).utcoffset() for at in (moment - hour, moment + hour)}
    assert len(around) == 2, "the clock changes there"
    since = moment - 4 * hour
    start_ms = round(since.timestamp() * 1000)
    for cron in (
        "*/15 * * * *", "*/30 0-3 * * *", "*/20 2 * * *", "41 * * * *", "5,35 */2 * * *",
        "0 0 * * *", "30 0 * * *", "15,45 0-4 * * *", "0 2,3 * * *", "59 23 * * *",
    ):  # fmt: skip
        times, at = Rhythm(cron=cron, tz=tz), start_ms - 1
        found = []
        while (at := next_after(times, at)) < start_ms + 9 * 60 * MINUTE:
            found.append(datetime.fromtimestamp(at / 1000, UTC))
        assert found == watched(cron, tz, since, 9), cron


@pytest.mark.parametrize("tz", ["localtime", "posixrules", "right/Europe/Berlin", "posix/UTC"])
def test_a_zone_that_is_another_one_elsewhere_is_refused(tz: str) -> None:
    """Each worker would go by its own machine's, and many machines have none of that name."""
    with pytest.raises(Invalid, match="not the same on every machine"):
        rhythm("0 0 * * *", None, tz, now_ms=NOON)


@pytest.mark.parametrize("tz", ["UTC", BERLIN, NEW_YORK, SYDNEY, "Africa/Cairo", "Asia/Kathmandu"])
@pytest.mark.parametrize("cron", ["*/20 * * * *", "30 0,1,2 * * *", "0 0 * * 5", "5 */3 1,15 * *"])
def test_each_time_lies_after_the_one_before(cron: str, tz: str) -> None:
    times = Rhythm(cron=cron, tz=tz)
    at, found = ms("2026-03-01T00:00", "UTC"), []
    for _ in range(200):
        at = next_after(times, at)
        found.append(at)
        assert next_after(times, at - 1) == at
        assert at % MINUTE == 0
    assert all(a < b for a, b in pairwise(found))


def test_every_counts_from_its_anchor_without_drift() -> None:
    times = rhythm(None, "90s", "UTC", now_ms=NOON + 7)
    assert next_after(times, NOON + 7) == NOON + 90_007
    assert next_after(times, NOON + 90_006) == NOON + 90_007
    assert next_after(times, NOON + 90_007) == NOON + 180_007
    assert next_after(times, NOON + 90_007 * 1000 + 55) == NOON + 7 + 90_000 * 1001
    assert next_after(times, 0) == NOON + 90_007


# What was missed


def plan(missed: str = "once", cron: str = "", every_ms: int = 0) -> Planned:
    said = CheckedMessage(op=MessageOp(text="hello"), agent="a", queue="a")
    times = Rhythm(cron=cron, every_ms=every_ms, anchor_ms=NOON)
    return Planned.model_validate({"rhythm": times, "missed": missed, "message": said})


@pytest.mark.parametrize("missed", ["once", "skip"])
def test_a_run_within_a_minute_is_not_missed(missed: str) -> None:
    each_minute = plan(missed, cron="* * * * *")
    assert decide(each_minute, NOON, NOON + 900) == Decision(True, NOON + MINUTE)
    assert decide(each_minute, NOON, NOON + LATE_MS) == Decision(True, NOON + 2 * MINUTE)


def test_what_was_missed_is_one_run_for_all() -> None:
    late = NOON + 10 * MINUTE + 5_000
    assert decide(plan(cron="* * * * *"), NOON, late) == Decision(True, NOON + 11 * MINUTE)
    assert decide(plan(every_ms=45_000), NOON, late) == Decision(True, NOON + 630_000)


def test_or_none_but_the_one_that_is_due_now() -> None:
    late = NOON + 10 * MINUTE + 5_000
    skipping = plan("skip", cron="* * * * *")
    assert decide(skipping, NOON, late) == Decision(False, NOON + 10 * MINUTE)
    assert decide(skipping, NOON + 10 * MINUTE, late) == Decision(True, NOON + 11 * MINUTE)
    daily = plan("skip", cron="0 12 * * *")
    noon = next_after(daily.rhythm, NOON)
    assert decide(daily, noon, noon + 3 * MINUTE) == Decision(False, noon + DAY)


# What is asked for


@pytest.mark.parametrize(
    ("cron", "every", "tz", "field"),
    [
        (None, None, "UTC", "cron"),
        ("* * * * *", "1h", "UTC", "cron"),
        ("* * * *", None, "UTC", "cron"),
        ("* * * * * *", None, "UTC", "cron"),
        ("61 * * * *", None, "UTC", "cron"),
        ("0 0 30 2 *", None, "UTC", "cron"),
        ("* * * * " + "1," * 300 + "1", None, "UTC", "cron"),
        (7, None, "UTC", "cron"),
        ("0 9 * * *", None, "Mars/Olympus", "tz"),
        ("0 9 * * *", None, "../../etc/passwd", "tz"),
        ("0 9 * * *", None, "Europe", "tz"),
        ("0 9 * * *", None, 1, "tz"),
        ("0 9 * * *", None, "", "tz"),
        (None, "29s", "UTC", "every"),
        (None, "400d", "UTC", "every"),
        (None, "often", "UTC", "every"),
        (None, "1h", BERLIN, "tz"),
    ],
)
def test_what_is_no_schedule_is_refused(cron: str, every: str, tz: str, field: str) -> None:
    with pytest.raises(Invalid) as told:
        rhythm(cron, every, tz, now_ms=NOON)
    assert told.value.field == field


def test_a_cron_expression_is_read_or_refused_whatever_it_is() -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    read = 0
    for _ in range(3000):
        fields = [
            "".join(chance.choices("0123456789*/-,L#W", k=chance.randint(1, 4)))
            if chance.random() < 0.3
            else chance.choice(("*", "0", "*/5", "1-3", "2,4", "L"))
            for _ in range(5)
        ]
        try:
            rhythm(" ".join(fields), None, BERLIN, now_ms=NOON)
            read += 1
        except Invalid:
            continue
        except Exception as error:
            raise AssertionError(f"seed {seed}: {fields}") from error
    assert read > 100


def test_a_schedule_that_says_the_same_is_the_same_whenever_it_was_made() -> None:
    first = plan(every_ms=60_000)
    later = first.model_copy(update={"rhythm": first.rhythm.model_copy(update={"anchor_ms": 5})})
    assert later.digest("web:1") == first.digest("web:1")
    others = [plan("skip", every_ms=60_000), plan(every_ms=61_000), plan(cron="* * * * *")]
    digests = {first.digest("web:1"), first.digest("web:2"), *(o.digest("web:1") for o in others)}
    assert len(digests) == 5


def test_the_id_of_a_run_names_the_schedule_and_its_time() -> None:
    assert submission_of("daily", NOON) == "schedule:daily:1796040000000"


def test_a_body_is_read_as_older_releases_wrote_it() -> None:
    """And is the same schedule, so that nobody who makes it again puts it off."""
    written = (
        '{"rhythm":{"cron":"30 7 * * 1-5","tz":"Europe/Berlin","every_ms":0,"anchor_ms":7},'
        '"missed":"once","message":{"op":{"type":"message","text":"hello","attachments":[],'
        '"author":"user","model":null,"metadata":null,"budget":null},"agent":"a","queue":"a","tenant":"",'
        '"context":"{}","policy":"","priority":0,"durability":null}}'
    )
    read = Planned.model_validate_json(written)
    made = plan(cron="30 7 * * 1-5")
    times = made.rhythm.model_copy(update={"tz": BERLIN, "anchor_ms": 7})
    assert read == made.model_copy(update={"rhythm": times})
    assert Planned.model_validate_json(read.model_dump_json()) == read
    assert read.digest("web:1") == "cb503250d01f8df1"

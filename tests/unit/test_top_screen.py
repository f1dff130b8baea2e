"""What `changeover top` shows, as text of a given size."""

from __future__ import annotations

from textwrap import dedent

import pytest

from changeover import Glance, Pause, QueueActivity, QueueGlance, ServerGlance, WorkerInfo
from changeover.cli._glances import Size, lines_of
from changeover.cli._output import clock

NOW = 1_796_075_070_000


def worker(name: str, sessions: int = 0, state: str = "running", turns: int = 0) -> WorkerInfo:
    return WorkerInfo.model_validate(
        {
            "worker": name,
            "incarnation": f"{name}:1",
            "state": state,
            "build": "1.5.0",
            "host": name.partition("@")[2],
            "queues": ("assistant",),
            "slots": 200,
            "sessions": sessions,
            "renewed_at_ms": NOW - (24_000 if state == "silent" else 2_000),
            "activity": {"assistant": QueueActivity(recent_turns=turns, recent_claims=turns // 2)},
            "recent_ms": 60_000,
        }
    )


FLEET = Glance(
    at_ms=NOW,
    fleet="co",
    sessions=48_120,
    running=115,
    ready=9_812,
    timers=210,
    quarantined=1,
    turns_per_minute=412.4,
    claims_per_minute=205.6,
    takeovers_per_minute=0.0,
    servers=(
        ServerGlance(
            name="redis://10.0.0.5:6379/0",
            version="valkey 9.1.2",
            role="master",
            used_bytes=3 << 29,
            limit_bytes=4 << 30,
            ops_per_second=1234,
            clients=12,
            replicas=1,
        ),
    ),
    queues=(
        QueueGlance(
            queue="assistant", running=115, workers=2, turns_per_minute=412.4, claims_per_minute=206
        ),
        QueueGlance(
            queue="triage",
            state="paused",
            ready=9_812,
            oldest_ms=41_000,
            paused=Pause(by="ops", reason="provider outage", since_ms=NOW - 180_000),
        ),
    ),
    workers=(
        worker("a@host-3", 112, turns=400),
        worker("b@host-2", 3, "draining", turns=12),
        worker("c@host-1", 41, "silent", turns=99),
    ),
)


def text(found: Glance, size: Size | None = None, **given: str) -> str:
    return "\n".join(line.text for line in lines_of(found, size, **given)) + "\n"


def test_servers_counts_rates_queues_and_workers() -> None:
    assert text(FLEET) == dedent(
        f"""\
        changeover top · fleet co · {clock(NOW)}
        valkey 9.1.2 · redis://10.0.0.5:6379/0 · primary with 1 replica · 1.5 GiB of 4 GiB (38 %) · 1234 ops/s · 12 clients
        48120 sessions · 115 running · 9812 ready · 210 with a timer · 1 quarantined
        412 turns/min · 206 claims/min · 0 takeovers/min

        QUEUE      STATE   READY  OLDEST  RUNNING  WORKERS  TURNS/MIN  CLAIMS/MIN  TAKEOVERS/MIN
        assistant  open        0  -           115        2        412         206              0
        triage     paused   9812  41 s          0        0          0           0              0  paused by ops 3 m ago: provider outage

        WORKER    STATE     SESSIONS  SLOTS  TURNS/MIN  CLAIMS/MIN  TAKEOVERS/MIN  BUILD  RENEWED    HOST
        a@host-3  running        112    200        400         200              0  1.5.0  2.0 s ago  host-3
        b@host-2  draining         3    200         12           6              0  1.5.0  2.0 s ago  host-2
        c@host-1  silent          41    200          -           -              -  1.5.0  24 s ago   host-1
        """  # noqa: E501
    )


def test_a_narrow_screen_cuts_lines_and_says_so() -> None:
    assert text(FLEET, Size(40, 30), foot="q quits") == dedent(
        f"""\
        changeover top · fleet co · {clock(NOW)}
        valkey 9.1.2 · redis://10.0.0.5:6379/0 …
        48120 sessions · 115 running · 9812 rea…
        412 turns/min · 206 claims/min · 0 take…

        QUEUE      STATE   READY  OLDEST  RUNNI…
        assistant  open        0  -           1…
        triage     paused   9812  41 s         …

        WORKER    STATE     SESSIONS  SLOTS  TU…
        a@host-3  running        112    200    …
        b@host-2  draining         3    200    …
        c@host-1  silent          41    200    …

        q quits
        """
    )


def test_a_low_screen_keeps_what_needs_somebody_most() -> None:
    busy = FLEET.model_copy(
        update={
            "queues": tuple(QueueGlance(queue=f"q{n}", ready=n) for n in range(10)),
            "workers": (
                *(worker(f"w{n}", n) for n in range(10)),
                worker("x", 1, "silent"),
                worker("y", 1, "draining"),
            ),
        }
    )
    first = [line.split(" ")[0] for line in text(busy, Size(70, 18), foot="q quits").splitlines()]
    assert len(first) == 18
    assert first[5:10] == ["QUEUE", "q7", "q8", "q9", "and"]
    assert first[11:] == ["WORKER", "w9", "x", "y", "and", "", "q"]
    assert "and 7 more" in text(busy, Size(70, 18), foot="q quits")


@pytest.mark.parametrize("height", range(1, 30))
@pytest.mark.parametrize("lost", ["", "Redis does not answer"])
def test_no_screen_is_larger_than_the_terminal(height: int, lost: str) -> None:
    found = lines_of(FLEET, Size(33, height), lost=lost, foot="q quits")
    assert len(found) <= height
    assert max(len(line.text) for line in found) <= 33


def test_what_is_shown_is_told_to_be_old_while_redis_is_away() -> None:
    shown = text(FLEET, Size(90, 30), lost="Redis does not answer, this is 12 s old: gone")
    assert shown.splitlines()[1] == "Redis does not answer, this is 12 s old: gone"
    assert "a@host-3" in shown


def test_many_primaries_take_few_lines_and_a_silent_one_says_why() -> None:
    silent = ServerGlance(name="h:1", error="timed out")
    others = [FLEET.servers[0].model_copy(update={"name": f"h:{n}"}) for n in range(2, 7)]
    shown = text(FLEET.model_copy(update={"servers": (silent, *others)})).splitlines()
    assert shown[1] == "h:1 says nothing: timed out"
    assert shown[4] == "and 3 more primaries · 4.5 GiB · 3702 ops/s"


def test_names_cannot_move_the_cursor() -> None:
    found = FLEET.model_copy(update={"workers": (worker("a\x1b[2J"),)})
    assert "\x1b" not in text(found)

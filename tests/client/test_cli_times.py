"""The command line of messages that come at another time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from changeover import SyncClient
from changeover.cli import main
from tests.support.servers import running_server

SCHEDULE = {
    "name", "session_id", "due_at_ms", "text", "agent", "queue", "cron", "tz", "every_ms", "missed",
    "policy", "priority",
}  # fmt: skip

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_server("valkey") as server:
        yield server


@pytest.fixture
def run(url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command; its exit code, what it says, and what it says beside."""
    monkeypatch.setenv("CHANGEOVER_REDIS_URL", url)

    def run_it(*args: str) -> tuple[int, str, str]:
        code = main(args)
        out, err = capsys.readouterr()
        return code, out, err

    return run_it


def test_a_message_is_sent_for_later_and_shown(run: Run) -> None:
    code, _, _ = run("submit", "t:1", "later", "--id", "m1", "--at", "2027-01-01T09:00+01:00")
    assert code == 0
    _, told, _ = run("show", "t:1")
    assert "t:1 is idle" in told
    assert "  waits for submission m1 until 2027-01-01T08:00:00Z\n" in told
    _, told, _ = run("show", "t:1", "--inbox")
    assert "waits until 2027-01-01T08:00:00Z  m1  later" in told
    _, told, _ = run("show", "t:1", "--inbox", "--json")
    assert json.loads(told)["items"][0]["due_at_ms"] == 1_798_790_400_000
    _, told, _ = run("sessions")
    assert "submission m1 until 2027-01-01T08:00:00Z   " in told
    assert run("submit", "t:1", "and later", "--at", "2027-01-01T10:00+01:00", "--id", "m2")[0] == 0
    _, told, _ = run("sessions")
    assert "submission m1 until 2027-01-01T08:00:00Z, ...   " in told
    assert "m2" not in told
    assert "m2 until 2027-01-01T09:00:00Z\n" in run("show", "t:1")[1]
    assert run("cancel", "t:1", "m2")[0] == 0
    _, told, _ = run("explain", "t:1")
    assert told.startswith("t:1 waits for its time: due in ")
    assert "[scheduled]" in told
    assert run("cancel", "t:1", "m1")[0] == 0


def test_a_wait_that_is_given_up_says_when_it_is_due(run: Run) -> None:
    code, _, told = run("submit", "t:2", "later", "--delay", "1h", "--wait", "--timeout", "0s")
    assert code == 6
    assert re.search(r"; it is due at [0-9-]{10}T[0-9:]{8}Z; changeover follow t:2 ", told)


@pytest.mark.parametrize(
    ("option", "value"),
    [("--at", "2027-01-01T09:00"), ("--at", "soon"), ("--delay", "soon"), ("--delay", "9999d")],
)
def test_what_is_no_time_is_wrong_usage(run: Run, option: str, value: str) -> None:
    assert run("submit", "t:3", "later", option, value)[0] == 2
    assert run("show", "t:3")[0] == 3


def test_a_line_of_many_may_have_a_time_of_its_own(run: Run, url: str, tmp_path: Path) -> None:
    """In the place of the one of the command line."""
    lines = [
        {"session": "t:4", "text": "a"},
        {"session": "t:5", "text": "b", "at": "2027-01-01T09:00Z"},
        {"session": "t:6", "text": "c", "delay": "0s"},
        {"session": "t:7", "text": "d", "at": "nine"},
        {"session": "t:8", "text": "e", "at": "2027-01-01T09:00Z", "delay": "1h"},
    ]
    path = tmp_path / "many.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    _, told, wrong = run("submit", "--many", str(path), "--delay", "1h")
    assert told == "3 accepted · 0 duplicate · 2 refused\n"
    assert "line 4: at: 'nine' is no time with a zone" in wrong
    assert "line 5: " in wrong
    with SyncClient(url) as client:
        waiting = {one: client.session(one).waiting for one in ("t:4", "t:5", "t:6")}
    assert waiting["t:4"] is not None
    assert str(waiting["t:5"]).endswith("until 2027-01-01T09:00:00Z")
    assert waiting["t:6"] is None


def test_a_schedule_is_made_listed_and_taken_away(run: Run) -> None:
    code, told, hint = run(
        "schedule", "news", "t:9", "What is new?", "--cron", "30 7 1 1 *", "--tz", "Europe/Berlin"
    )
    assert (code, told) == (0, "news is due at 2027-01-01T06:30:00Z\n")
    assert hint == "changeover unschedule news\n"
    code, told, _ = run("schedule", "check", "t:9", "Look", "--every", "2h", "--json")
    assert (code, set(json.loads(told))) == (0, SCHEDULE)
    _, told, _ = run("schedules")
    lines = [line.split("  ") for line in told.splitlines()]
    assert [line[0] for line in lines] == ["NAME", "check", "news"]
    assert "every 2 h" in told
    assert "30 7 1 1 * Europe/Berlin  2027-01-01T06:30:00Z  once" in told
    _, told, hint = run("schedules", "--limit", "1")
    assert hint == "next page: --cursor check\n"
    _, told, _ = run("schedules", "--cursor", "check", "--json")
    listed = json.loads(told)
    assert ([one["name"] for one in listed["items"]], listed["next"]) == (["news"], None)
    assert run("unschedule", "news")[:2] == (0, "news is taken away\n")
    code, told, _ = run("unschedule", "news", "--json")
    assert (code, json.loads(told)) == (3, {"name": "news", "unscheduled": False})


def test_a_wrong_schedule_is_wrong_usage(run: Run) -> None:
    for wrong in (
        [],
        ["--cron", "* * * *"],
        ["--every", "1s"],
        ["--every", "1h", "--cron", "* * * * *"],
        ["--cron", "0 9 * * *", "--tz", "Moon"],
        ["--every", "1h", "--missed", "twice"],
        ["--every", "1h", "--policy", "later"],
    ):
        code, out, err = run("schedule", "wrong", "t:10", "hello", *wrong)
        assert (code, out, bool(err)) == (2, "", True), wrong
    assert "wrong" not in run("schedules")[1]

"""What is counted from log events, and what labels may hold."""

from __future__ import annotations

import pytest

from changeover_shared._store.keys import Keys
from changeover_shared._store.requests import Request
from changeover_shared._store.scripts import script
from changeover_worker._process.counted_log import kind_of
from changeover_worker._process.counted_store import _REPEATED
from changeover_worker._process.meters import Meters
from tests.support.probing import samples
from tests.support.working import capture

ALLOWED_LABELS = {"agent", "ending", "kind", "model", "queue", "reason", "script", "server"} | {
    "state",
    "status",
    "tool",
}


def test_labels_are_of_a_closed_set_that_names_no_session_turn_or_user() -> None:
    found = {label for metric in Meters().described for label in metric.labels}
    assert found == ALLOWED_LABELS


def test_every_metric_says_what_it_is_and_ends_as_its_kind_does() -> None:
    for metric in Meters().described:
        assert metric.name.startswith("changeover_")
        assert metric.text.endswith(".")
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric
        assert metric.kind != "histogram" or metric.name.endswith(("_seconds", "_bytes")), metric


def test_what_is_alerted_on_begins_with_nothing() -> None:
    """An increase from no series to 1 is none for Prometheus."""
    found = samples(Meters().page().decode())
    for name in ("fenced_writes_refused_total", "takeovers_total", "redis_disruptions_total"):
        values = {value for one, value in found.items() if one.startswith(f"{name}{{")}
        assert values == {0}, name
    assert found["tools_unknown_total"] == found["event_loop_blocks_total"] == 0


def test_what_is_logged_reaches_the_log_as_it_was_said() -> None:
    log, entries = capture()
    heard = Meters().log.hearing(log).bind(session="s:1")
    heard.warning("tool_failed", tool="x", exc_info=ValueError("no"))
    heard.debug("write_refused", script="commit", word="INPUT")
    first, second = (dict(one) for one in entries.entries)
    assert str(first.pop("exc_info")) == "no"
    assert first == {
        "event": "tool_failed", "session": "s:1", "tool": "x", "log_level": "warning"
    }  # fmt: skip
    assert second["log_level"] == "debug"


def test_an_exception_is_logged_with_its_traceback() -> None:
    log, entries = capture()
    try:
        raise ValueError("no")
    except ValueError:
        Meters().log.hearing(log).exception("warning", code="session_crashed")
    assert entries.entries[0]["exc_info"] is True
    assert entries.entries[0]["log_level"] == "error"


@pytest.mark.parametrize(
    ("level", "event", "fields", "counted"),
    [
        (
            "info",
            "session_taken",
            {"session": "s:1", "reason": "evicted", "unknown_tools": 0},
            {'takeovers_total{reason="evicted"}': 1},
        ),
        (
            "warning",
            "write_refused",
            {"session": "s:1", "script": "append", "word": "lease_lost"},
            {'fenced_writes_refused_total{script="append"}': 1, "leases_lost_total": 1},
        ),
        (
            "debug",
            "write_refused",
            {"session": "s:1", "script": "commit", "word": "INPUT"},
            {"leases_lost_total": 0},
        ),
        (
            "warning",
            "lease_lost",
            {"session": "s:1", "word": "lease_gone"},
            {"leases_lost_total": 1},
        ),
        (
            "info",
            "session_handed_off",
            {"session": "s:1", "ms": 250},
            {"handoff_seconds_sum": 0.25},
        ),
        (
            "info",
            "session_claimed",
            {"session": "s:1", "queue": "a", "waited_ms": 40},
            {'claim_wait_seconds_sum{queue="a"}': 0.04},
        ),
    ],
)
def test_events_are_counted(
    level: str, event: str, fields: dict[str, object], counted: dict[str, float]
) -> None:
    meters = Meters()
    getattr(meters.log.hearing(capture()[0]), level)(event, **fields)
    text = meters.page().decode()
    found = samples(text)
    assert {name: found.get(name) for name in counted} == counted
    assert "s:1" not in text
    fenced = sum(found[name] for name in found if name.startswith("fenced_writes"))
    assert fenced == any("fenced" in name for name in counted)


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("READONLY You can't write against a read only replica.", "readonly"),
        ("LOADING Redis is loading the dataset in memory", "loading"),
        ("no answer to a renewal", "timeout"),
        ("Timeout reading from 10.0.0.1:6379", "timeout"),
        ("Error 111 connecting to 10.0.0.1:6379. Connect call failed.", "connection"),
        ("Connection closed by server.", "connection"),
        ("it answered 'NOPERM User x' in session s:1", "other"),
    ],
)
def test_why_redis_was_away_is_one_of_a_few_words(reason: str, kind: str) -> None:
    assert kind_of(reason) == kind


def test_the_words_that_are_counted_as_repeats_are_words_of_their_scripts() -> None:
    for name, word in _REPEATED:
        source = "commit" if name == "settle" else name
        assert word in script(source).header.replies


def test_repeats_commits_and_trims_are_counted_by_what_the_script_says() -> None:
    meters = Meters()

    def reply(name: str, word: str) -> None:
        request = Request(name, Keys("co", 1).all[0], {}, {"state": "x" * 100})
        meters.store.replied(request, [word], 0.01)

    for name, word in (("commit", "OK"), ("commit", "REPLAY"), ("commit", "CONTROL")):
        reply(name, word)
    for name, word in (("append", "OK"), ("append", "ALREADY"), ("trim", "OK"), ("trim", "NONE")):
        reply(name, word)
    found = samples(meters.page().decode())
    assert found['repeats_answered_total{script="commit"}'] == 1
    assert found['repeats_answered_total{script="append"}'] == 1
    assert (found["commit_seconds_count"], found["commit_bytes_sum"]) == (2, 200)
    assert found["journal_trims_total"] == 1

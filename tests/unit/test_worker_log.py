from __future__ import annotations

import io
import json
from typing import Literal

import pytest
from structlog.typing import FilteringBoundLogger

from changeover_shared._settings import Settings
from changeover_worker._process.log import make_log


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def log_to(
    out: io.StringIO, format: Literal["auto", "text", "json"] = "auto"
) -> FilteringBoundLogger:
    return make_log(Settings(log_format=format), out)


def line_of(out: io.StringIO) -> str:
    """What was written, without the time in front."""
    return out.getvalue().rstrip("\n").partition(" ")[2]


def test_a_terminal_reads_a_sentence_per_event() -> None:
    out = Terminal()
    log_to(out).info(
        "worker_started",
        worker="a@host-3",
        boot="7f3c",
        build="1.5.0",
        queues=("assistant", "report"),
        slots=200,
        lease="30s/10s",
        redis="8.2 aof noeviction",
    )
    assert line_of(out) == (
        "worker_started    a@host-3 boot 7f3c build 1.5.0 · queues assistant, report · 200 slots"
        " · lease 30s/10s · redis 8.2 aof noeviction"
    )


@pytest.mark.parametrize(
    ("event", "fields", "sentence"),
    [
        (
            "session_claimed",
            {"session": "telegram:42", "queue": "a", "fence": 7, "waited_ms": 4, "inbox": 1},
            "session_claimed   telegram:42 fence 7 · waited 4 ms · inbox 1",
        ),
        (
            "session_taken",
            {
                "session": "web:9",
                "fence": 3,
                "from": "d@host-4",
                "reason": "taken_over",
                "turn": "t_2",
            },
            "session_taken     web:9 fence 3 from d@host-4 (taken_over) · t_2 goes on",
        ),
        (
            "turn_ended",
            {
                "session": "telegram:42",
                "turn": "t_1",
                "agent": "assistant",
                "ending": "completed",
                "steps": 2,
                "tools": 1,
                "tokens": 611,
                "ms": 1300,
            },
            "turn_ended        telegram:42 completed · 2 steps, 1 tool, 611 tokens · 1.3 s",
        ),
        (
            "tool_unknown",
            {"session": "web:12", "call": "c1", "tool": "charge_card"},
            'tool_unknown      web:12 charge_card is "once" and may have run: the model is told so',
        ),
        (
            "lease_lost",
            {"session": "web:12", "fence": 3, "current": 4},
            "lease_lost        session web:12 · fence 3 · current 4",
        ),
        ("warning", {"code": "redis_away", "text": "gone"}, "warning           redis_away: gone"),
    ],
)
def test_events_read_as_sentences(event: str, fields: dict[str, object], sentence: str) -> None:
    out = io.StringIO()
    log_to(out, "text").info(event, **fields)
    assert line_of(out) == sentence


def test_anything_but_a_terminal_gets_one_json_object_per_line() -> None:
    out = io.StringIO()
    log_to(out).warning("lease_lost", session="web:9", fence=3, current=4)
    logged = json.loads(out.getvalue())
    assert logged.pop("at")
    assert logged == {
        "event": "lease_lost",
        "level": "warning",
        "session": "web:9",
        "fence": 3,
        "current": 4,
    }


def test_less_severe_events_than_asked_for_are_left_out() -> None:
    out = io.StringIO()
    make_log(Settings(log_level="error"), out).warning("warning", code="x")
    assert out.getvalue() == ""


def test_a_traceback_follows_its_event() -> None:
    out = io.StringIO()
    try:
        raise RuntimeError("boom")
    except RuntimeError:
        log_to(out, "text").exception("warning", code="session_crashed")
    first, *rest = out.getvalue().splitlines()
    assert "session_crashed" in first
    assert rest[-1] == "RuntimeError: boom"

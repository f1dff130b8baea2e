from __future__ import annotations

import ast
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from structlog.typing import FilteringBoundLogger

import changeover_worker
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
            "limiter_parked",
            {"session": "web:7", "model": "main", "s": 12.5},
            "limiter_parked    web:7 waits 12.5 s for the limit of main · its slot is free",
        ),
        (
            "session_claimed",
            {"session": "telegram:42", "queue": "a", "fence": 7, "waited_ms": 4, "inbox": 1},
            "session_claimed   telegram:42 fence 7 · waited 4 ms · inbox 1",
        ),
        (
            "session_handed_off",
            {"session": "web:9", "to_boundary": True, "ms": 2439},
            "session_handed_off web:9 at a step boundary · 2.4 s",
        ),
        (
            "session_handed_off",
            {"session": "web:9", "to_boundary": False, "ms": 40},
            "session_handed_off web:9 at once · 0.0 s",
        ),
        (
            "model_failed",
            {"session": "web:9", "turn": "t_1", "kind": "provider_server", "error": "503"},
            "model_failed      web:9 provider_server: 503",
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
            "session_taken",
            {
                "session": "web:9",
                "fence": 3,
                "from": "d@host-4",
                "reason": "evicted",
                "turn": "t_2",
                "step": 1,
                "unknown_tools": 2,
            },
            (
                "session_taken     web:9 fence 3 from d@host-4 (evicted) · t_2 goes on at step 1"
                " · 2 tools unknown"
            ),
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


def test_every_event_is_listed_with_its_keys() -> None:
    listed = {
        name: keys
        for names, keys in re.findall(r"^\| (`[^|]+) \|([^|]*)\|[^|]*\|$", TABLE, re.M)
        for name in re.findall(r"`(\w+)`", names)
    }
    logged = list(logged_in(Path(changeover_worker.__path__[0])))
    assert {event for event, _ in logged} == set(listed)
    for event, keys in logged:
        assert not {"at", "level", "event"} & set(keys), f"{event} has a key that every event has"
        missing = [key for key in keys if not re.search(rf"\b{key}\b", listed[event])]
        assert not missing, f"{event} has {missing}, which docs/operating.md does not say"


def test_every_event_is_looked_for_by_a_test_that_makes_it() -> None:
    here = Path(__file__)
    tests = [path for path in here.parents[1].rglob("*.py") if path.parent != here.parent]
    texts = [path.read_text("utf-8") for path in tests]
    for event, _ in logged_in(Path(changeover_worker.__path__[0])):
        assert any(f'"{event}"' in text for text in texts), f"no test looks for {event}"


TABLE = (
    (Path(__file__).parents[2] / "docs" / "operating.md")
    .read_text("utf-8")
    .partition("## Log events")[2]
    .partition("## Exit codes")[0]
)


def logged_in(package: Path) -> Iterator[tuple[str, list[str]]]:
    """Each call that logs an event: its name, its keys and the codes of warnings."""
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Attribute(
                        value=ast.Name("log") | ast.Attribute(attr="_log" | "log"),
                        attr="debug" | "info" | "warning" | "error" | "exception",
                    ),
                    args=[name],
                    keywords=keywords,
                ):
                    for event in constants(name):
                        yield event, list(words(event, keywords))


def constants(node: ast.expr) -> list[str]:
    """The texts that an expression may be."""
    match node:
        case ast.Constant(str(text)):
            return [text]
        case ast.IfExp(body=body, orelse=orelse):
            return [*constants(body), *constants(orelse)]
        case _:
            raise AssertionError(f"line {node.lineno}: an event's name is written out")


def words(event: str, keywords: list[ast.keyword]) -> Iterator[str]:
    """An event's keys; of a warning, which has many, its code alone."""
    for keyword in keywords:
        if event == "warning":
            if keyword.arg == "code" and isinstance(keyword.value, ast.Constant):
                yield str(keyword.value.value)
        elif keyword.arg not in (None, "exc_info"):
            yield str(keyword.arg)

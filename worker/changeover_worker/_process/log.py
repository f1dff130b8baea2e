"""Where log events go and how they read: one line of text for people, JSON for machines.

The names of events and their keys are a contract: `docs/operating.md` lists them, and a test
compares it with what the code logs.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from changeover_shared._settings import Settings
from changeover_shared._sizes import show_size

_LEVELS = logging.getLevelNamesMapping()
_WIDTH = 17


def make_log(settings: Settings, stream: TextIO | None = None) -> FilteringBoundLogger:
    """A log that writes to `stream` (stderr) what the settings ask for. Any thread may use it."""
    out = sys.stderr if stream is None else stream
    text = settings.log_format == "text" or (settings.log_format == "auto" and out.isatty())
    log: FilteringBoundLogger = structlog.wrap_logger(
        structlog.WriteLogger(out),
        processors=_for_people() if text else _for_machines(),
        wrapper_class=structlog.make_filtering_bound_logger(
            _LEVELS[settings.log_level.upper()],
        ),
        context_class=dict,
        cache_logger_on_first_use=False,
    )
    return log.bind()


def _for_people() -> list[Processor]:
    return [
        structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False, key="at"),
        structlog.processors.format_exc_info,
        render_text,
    ]


def _for_machines() -> list[Processor]:
    return [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
        structlog.processors.format_exc_info,
        _heading_first,
        structlog.processors.JSONRenderer(default=str),
    ]


def _heading_first(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    heading = {key: event.pop(key) for key in ("at", "level", "event")}
    return {**heading, **event}


def render_text(logger: WrappedLogger, method: str, event: EventDict) -> str:
    """One event as people read it; a traceback follows on lines of its own."""
    at, name = event.pop("at", ""), str(event.pop("event", ""))
    traceback = event.pop("exception", None)
    line = f"{at} {name:<{_WIDTH}} {_SENTENCES.get(name, _plain)(event)}".rstrip()
    return f"{line}\n{traceback}" if traceback else line


def _plain(fields: Mapping[str, Any]) -> str:
    return " · ".join(f"{key} {value}" for key, value in fields.items() if value not in ("", None))


def _worker_started(f: Mapping[str, Any]) -> str:
    build = f" build {f['build']}" if f.get("build") else ""
    queues = ", ".join(f["queues"])
    rest = _plain({key: f[key] for key in ("lease", "redis") if key in f})
    tail = f" · {rest}" if rest else ""
    return f"{f['worker']} boot {f['boot']}{build} · queues {queues} · {f['slots']} slots{tail}"


def _session_claimed(f: Mapping[str, Any]) -> str:
    return f"{f['session']} fence {f['fence']} · waited {f['waited_ms']} ms · inbox {f['inbox']}"


def _session_taken(f: Mapping[str, Any]) -> str:
    step = "" if f.get("step") is None else f" at step {f['step']}"
    turn = f" · {f['turn']} goes on{step}" if f.get("turn") else ""
    tools = f" · {_count(f['unknown_tools'], 'tool')} unknown" if f.get("unknown_tools") else ""
    return f"{f['session']} fence {f['fence']} from {f['from']} ({f['reason']}){turn}{tools}"


def _session_parked(f: Mapping[str, Any]) -> str:
    until = f" until {f['until']}" if f.get("until") else ""
    return f"{f['session']} {f['reason']}{until} · its slot is free"


def _limiter_parked(f: Mapping[str, Any]) -> str:
    return f"{f['session']} waits {f['s']:g} s for the limit of {f['model']} · its slot is free"


def _session_handed_off(f: Mapping[str, Any]) -> str:
    how = "at a step boundary" if f["to_boundary"] else "at once"
    return f"{f['session']} {how} · {f['ms'] / 1000:.1f} s"


def _model_failed(f: Mapping[str, Any]) -> str:
    return f"{f['session']} {f['kind']}: {f['error']}"


def _turn_ended(f: Mapping[str, Any]) -> str:
    tools = _count(f["tools"], "tool")
    return (
        f"{f['session']} {f['ending']} · {_count(f['steps'], 'step')}, {tools}, "
        f"{f['tokens']} tokens · {f['ms'] / 1000:.1f} s"
    )


def _tool_unknown(f: Mapping[str, Any]) -> str:
    return f'{f["session"]} {f["tool"]} is "once" and may have run: the model is told so'


def _redis_memory(f: Mapping[str, Any]) -> str:
    return f"{f['server']} uses {show_size(f['used'])} of {show_size(f['limit'])}"


def _redis_memory_high(f: Mapping[str, Any]) -> str:
    return f"{_redis_memory(f)}: messages are refused"


def _redis_memory_back(f: Mapping[str, Any]) -> str:
    return f"{_redis_memory(f)}: messages are taken again"


def _inbox_full(f: Mapping[str, Any]) -> str:
    return f"{f['depth']} submissions of {f['whose']} wait, {f['limit']} may: messages are refused"


def _inbox_back(f: Mapping[str, Any]) -> str:
    return f"{f['depth']} submissions of {f['whose']} wait: messages are taken again"


def _warning(f: Mapping[str, Any]) -> str:
    rest = _plain({key: value for key, value in f.items() if key not in ("code", "text")})
    said = f": {f['text']}" if f.get("text") else ""
    return f"{f['code']}{said}" + (f" · {rest}" if rest else "")


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


_SENTENCES: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "worker_started": _worker_started,
    "session_claimed": _session_claimed,
    "session_taken": _session_taken,
    "session_parked": _session_parked,
    "limiter_parked": _limiter_parked,
    "session_handed_off": _session_handed_off,
    "model_failed": _model_failed,
    "turn_ended": _turn_ended,
    "tool_unknown": _tool_unknown,
    "inbox_full": _inbox_full,
    "inbox_back": _inbox_back,
    "redis_memory_high": _redis_memory_high,
    "redis_memory_back": _redis_memory_back,
    "warning": _warning,
}

"""What is counted from log events.

An event is said where something happens, and its name and keys are a contract: so no layer has to
know that it is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, WrappedLogger

from changeover_shared._words import WorkerChange
from changeover_worker._process.instruments import Instruments

WAITS: Final = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 30.0, 60.0, 300.0, 900.0)
TURNS: Final = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)

_ANSWERS: Final = frozenset(
    {"readonly", "loading", "masterdown", "clusterdown", "misconf", "oom", "noreplicas"}
) | frozenset({"busy", "tryagain", "noauth", "wrongpass", "noperm", "moved"})
"""What a server may answer instead, by its first word."""

Fields = Mapping[str, Any]


def kind_of(reason: str) -> str:
    """One of a few words for why Redis was away, out of a text for people."""
    word, text = reason.partition(" ")[0].lower(), reason.lower()
    if word in _ANSWERS:
        return word
    if "timeout" in text or "timed out" in text or "no answer" in text:
        return "timeout"
    if any(said in text for said in ("connect", "closed", "reset", "refused", "broken pipe")):
        return "connection"
    return "other"


class LogCounts:
    """Counts events on their way into a log."""

    def __init__(self, made: Instruments) -> None:
        self._claim_wait = made.histogram(
            "claim_wait_seconds",
            "How long the oldest input of a claimed session had waited.",
            ("queue",),
            WAITS,
        )
        self._takeovers = made.counter(
            "takeovers_total",
            "Sessions taken from a holder that did not release them.",
            ("reason",),
            tuple(WorkerChange),
        )
        self._handoffs = made.histogram(
            "handoff_seconds", "From the order to drain to a session's hand-off.", (), TURNS
        )
        self._leases_lost = made.counter(
            "leases_lost_total", "Sessions that this worker had to let go, for whatever reason."
        )
        self._fenced = made.counter(
            "fenced_writes_refused_total",
            "Writes that came after their lease had ended.",
            ("script",),
            ("append", "commit", "give_up"),
        )
        self._turns = made.counter("turns_total", "Turns that ended here.", ("agent", "ending"))
        self._turn_seconds = made.histogram(
            "turn_seconds",
            "From a turn's start to its end, wherever it ran meanwhile.",
            ("agent", "ending"),
            TURNS,
        )
        self._tools_unknown = made.counter(
            "tools_unknown_total",
            "Calls of a worker that died which may have run and are not run again.",
        )
        self._quarantines = made.counter(
            "quarantines_total", "Sessions that were stopped until an operator acts."
        )
        self._parked = made.counter(
            "parks_total", "Turns that went to wait without a worker.", ("reason",)
        )
        self._limited = made.counter(
            "limiter_parks_total", "Turns that went to wait for a model's limit.", ("model",)
        )
        self._disruptions = made.counter(
            "redis_disruptions_total",
            "How often Redis stopped answering.",
            ("kind",),
            (*sorted(_ANSWERS), "timeout", "connection", "other"),
        )
        self._blocked = made.counter(
            "event_loop_blocks_total", "How often the event loop was blocked for too long."
        )
        self._born: Mapping[str, Callable[[str, Fields], None]] = {
            "session_claimed": self._claimed,
            "session_taken": self._taken,
            "session_handed_off": lambda _, f: self._handoffs.observe(f["ms"] / 1000),
            "session_parked": lambda _, f: self._parked.labels(f["reason"]).inc(),
            "limiter_parked": lambda _, f: self._limited.labels(f["model"]).inc(),
            "session_quarantined": lambda *_: self._quarantines.inc(),
            "turn_ended": self._turn_ended,
            "tool_unknown": lambda *_: self._tools_unknown.inc(),
            "lease_lost": lambda *_: self._leases_lost.inc(),
            "write_refused": self._write_refused,
            "redis_lost": lambda _, f: self._disruptions.labels(kind_of(f["kind"])).inc(),
            "loop_blocked": lambda *_: self._blocked.inc(),
        }

    def hearing(self, log: FilteringBoundLogger) -> FilteringBoundLogger:
        """A log that says what it is told to `log`, and is counted on the way, at any level."""
        heard: FilteringBoundLogger = structlog.wrap_logger(
            log,
            processors=[self._hear],
            wrapper_class=structlog.make_filtering_bound_logger(0),
            context_class=dict,
            cache_logger_on_first_use=False,
        )
        return heard.bind()

    def _hear(self, logger: WrappedLogger, method: str, event: EventDict) -> Any:
        name = event.pop("event")
        if (count := self._born.get(name)) is not None:
            count(method, event)
        return (name,), event

    def _claimed(self, _: str, f: Fields) -> None:
        self._claim_wait.labels(f["queue"]).observe(f["waited_ms"] / 1000)

    def _taken(self, _: str, f: Fields) -> None:
        self._takeovers.labels(f["reason"]).inc()

    def _turn_ended(self, _: str, f: Fields) -> None:
        self._turns.labels(f["agent"], f["ending"]).inc()
        self._turn_seconds.labels(f["agent"], f["ending"]).observe(f["ms"] / 1000)

    def _write_refused(self, method: str, f: Fields) -> None:
        # With debug the lease stands: the session is read again and goes on.
        if method == "warning":
            self._leases_lost.inc()
            self._fenced.labels(f["script"]).inc()

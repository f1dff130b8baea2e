"""What a worker counts, as Prometheus reads it.

Most counts are born from log events: each is said where it happens, its name and keys are a
contract, and so no layer has to know of metrics. What passes without a word in the log is told by
those who know it, and what is a state is looked at when somebody asks.

Labels name what an app or an operator has named: agents, models, tools, queues. They never hold
the id of a session, a turn, a submission or a user, nor a text that came from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import Metric
from structlog.typing import EventDict, FilteringBoundLogger, WrappedLogger

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
PREFIX: Final = "changeover"

_WAITS: Final = (0.01, 0.05, 0.1, 0.5, 1, 5, 15, 30, 60, 300, 900)
_TURNS: Final = (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900, 3600)

Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Described:
    """A metric, for people."""

    name: str
    kind: str
    labels: tuple[str, ...]
    text: str


class Meters:
    """Counts what one process does. From any thread."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._described: list[Described] = []
        self._claim_wait = self._histogram(
            "claim_wait_seconds", "How long the oldest input of a claimed session had waited.",
            ("queue",), _WAITS,
        )  # fmt: skip
        self._takeovers = self._counter(
            "takeovers_total",
            "Sessions taken from a holder that did not release them.",
            ("reason",),
        )
        self._handoffs = self._histogram(
            "handoff_seconds", "From the order to drain to a session's hand-off.", (), _TURNS
        )
        self._leases_lost = self._counter(
            "leases_lost_total", "Sessions that this worker had to let go, for whatever reason."
        )
        self._fenced = self._counter(
            "fenced_writes_refused_total", "Writes that came after their lease had ended.",
            ("script",),
        )  # fmt: skip
        self._turns = self._counter("turns_total", "Turns that ended here.", ("agent", "ending"))
        self._turn_seconds = self._histogram(
            "turn_seconds", "From a turn's start to its end, wherever it ran meanwhile.",
            ("agent", "ending"), _TURNS,
        )  # fmt: skip
        self._slots = self._gauge("worker_slots", "How many sessions it may hold.", ("state",))
        self._lag = self._gauge(
            "event_loop_lag_seconds", "By how much the event loop was late, at most, lately."
        )
        self._slack = self._gauge(
            "lease_renew_slack_seconds",
            "How long the lease that ends first is still trusted; a fresh one if none is held.",
        )
        self._looks: list[Callable[[], None]] = []
        self._born: Mapping[str, Callable[[str, Fields], None]] = {
            "session_claimed": self._claimed,
            "session_taken": self._taken,
            "session_handed_off": self._handed_off,
            "turn_ended": self._turn_ended,
            "lease_lost": self._lease_lost,
            "write_refused": self._write_refused,
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

    def look_at(
        self,
        *,
        slots: Callable[[], tuple[int, int]],
        lag_s: Callable[[], float],
        slack_s: Callable[[], float],
    ) -> None:
        """What to look at when somebody asks: (sessions held, slots in all), by how much the loop
        was late, and for how long leases are trusted."""

        def look() -> None:
            held, limit = slots()
            self._slots.labels("used").set(held)
            self._slots.labels("free").set(max(0, limit - held))
            self._lag.set(lag_s())
            self._slack.set(slack_s())

        self._looks.append(look)

    def exposition(self) -> bytes:
        """Everything, in Prometheus's text format."""
        for look in self._looks:
            look()
        return generate_latest(_Shown(self.registry))

    def described(self) -> tuple[Described, ...]:
        """Every metric of ours, whether or not it was ever counted."""
        return tuple(self._described)

    # From log events

    def _hear(self, logger: WrappedLogger, method: str, event: EventDict) -> Any:
        name = event.pop("event")
        if (count := self._born.get(name)) is not None:
            count(method, event)
        return (name,), event

    def _claimed(self, _: str, f: Fields) -> None:
        self._claim_wait.labels(f["queue"]).observe(f["waited_ms"] / 1000)

    def _taken(self, _: str, f: Fields) -> None:
        self._takeovers.labels(f["reason"]).inc()

    def _handed_off(self, _: str, f: Fields) -> None:
        self._handoffs.observe(f["ms"] / 1000)

    def _turn_ended(self, _: str, f: Fields) -> None:
        self._turns.labels(f["agent"], f["ending"]).inc()
        self._turn_seconds.labels(f["agent"], f["ending"]).observe(f["ms"] / 1000)

    def _lease_lost(self, _: str, f: Fields) -> None:
        self._leases_lost.inc()

    def _write_refused(self, method: str, f: Fields) -> None:
        # With debug the lease stands: the session is read again and goes on.
        if method == "warning":
            self._leases_lost.inc()
            self._fenced.labels(f["script"]).inc()

    # Making them

    def _counter(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
        self._describe(name, "counter", labels, text)
        return Counter(f"{PREFIX}_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
        self._describe(name, "gauge", labels, text)
        return Gauge(f"{PREFIX}_{name}", text, labels, registry=self.registry)

    def _histogram(
        self, name: str, text: str, labels: tuple[str, ...], buckets: tuple[float, ...]
    ) -> Histogram:
        self._describe(name, "histogram", labels, text)
        full = f"{PREFIX}_{name}"
        return Histogram(full, text, labels, buckets=buckets, registry=self.registry)

    def _describe(self, name: str, kind: str, labels: tuple[str, ...], text: str) -> None:
        self._described.append(Described(f"{PREFIX}_{name}", kind, labels, text))


class _Shown:
    """What a registry holds without the times at which its series were made: half the text, and
    nothing asks for them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterable[Metric]:
        """Its metrics."""
        for metric in self._registry.collect():
            metric.samples = [one for one in metric.samples if not one.name.endswith("_created")]
            yield metric

"""What a worker counts, as Prometheus reads it.

Most counts are born from log events; what passes without a word there is told by the sessions and
the store, which know nothing of metrics either; and what is a state is looked at when somebody
asks. Labels name what an app or an operator has named: agents, models, tools, queues. They never
hold the id of a session, a turn, a submission or a user, nor a text that came from outside.
"""

from __future__ import annotations

from collections.abc import Callable

from changeover_worker._process.counted_fleet import FleetCounts
from changeover_worker._process.counted_log import LogCounts
from changeover_worker._process.counted_sessions import SessionCounts
from changeover_worker._process.counted_store import StoreCounts
from changeover_worker._process.instruments import Described, Instruments


class Meters:
    """Counts what one process does. From any thread."""

    def __init__(self) -> None:
        self._made = Instruments()
        self.log = LogCounts(self._made)
        self.sessions = SessionCounts(self._made)
        self.store = StoreCounts(self._made)
        self.fleet = FleetCounts(self._made)
        self._slots = self._made.gauge("worker_slots", "How many sessions it may hold.", ("state",))
        self._lag = self._made.gauge(
            "event_loop_lag_seconds", "By how much the event loop was late, at most, lately."
        )
        self._slack = self._made.gauge(
            "lease_renew_slack_seconds",
            "How long the lease that ends first is still trusted; a fresh one if none is held.",
        )
        self._look: Callable[[], None] = lambda: None

    @property
    def described(self) -> tuple[Described, ...]:
        """Every metric of ours, whether or not it was ever counted."""
        return tuple(self._made.described)

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

        self._look = look

    def page(self) -> bytes:
        """Everything, in Prometheus's text format."""
        self._look()
        return self._made.page()

"""A circuit breaker: leaves a provider alone that has failed several times in a row.

    closed     requests pass; `failures` counted failures in a row open it
    open       none passes until the cool-down is over
    half-open  exactly one passes, the probe: its success closes the circuit, all else opens it

Pure: the time is passed in, as seconds of a clock that never goes back.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Outcome(Enum):
    """What a request says about its provider."""

    ANSWERED = "answered"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """It was cancelled, or broke for a reason that is not the provider's: it never counts, but
    a probe that ends so has shown nothing, and the circuit opens again."""


class Change(Enum):
    """What the end of a request did to the circuit."""

    OPENED = "opened"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Permit:
    """The right to send one request. Each is given back once, to `Breaker.ended`."""

    round: int
    """A request of an earlier round says nothing about the provider as it is now."""


class Breaker:
    """The circuit of one provider, for all requests of a process."""

    def __init__(self, *, failures: int, cooldown_s: float) -> None:
        self._limit = failures
        self._cooldown_s = cooldown_s
        self._round = 0
        self._in_a_row = 0
        self._probe_at: float | None = None
        """When the next probe may pass; None while the circuit is closed."""
        self._probing = False

    def permit(self, now: float) -> Permit | None:
        """Let a request pass, or return None."""
        if self._probe_at is not None:
            if self._probing or now < self._probe_at:
                return None
            self._probing = True
            self._round += 1
        return Permit(self._round)

    def wait_s(self, now: float) -> float:
        """How long until a request may pass, at the soonest; 0 if one may pass now.

        Beside a probe the answer is a whole cool-down: if it fails now, that is when the next
        one may pass.
        """
        if self._probe_at is None:
            return 0.0
        return self._cooldown_s if self._probing else max(0.0, self._probe_at - now)

    def ended(self, permit: Permit, outcome: Outcome, now: float) -> Change | None:
        """Take the end of a request, and say whether it opened or closed the circuit."""
        if permit.round != self._round:
            return None
        if self._probing:
            return self._close() if outcome is Outcome.ANSWERED else self._open(now)
        if outcome is Outcome.ANSWERED:
            self._in_a_row = 0
        elif outcome is Outcome.FAILED:
            self._in_a_row += 1
            if self._in_a_row >= self._limit:
                return self._open(now)
        return None

    def _open(self, now: float) -> Change:
        self._probing = False
        self._probe_at = now + self._cooldown_s
        self._round += 1
        return Change.OPENED

    def _close(self) -> Change:
        self._probing = False
        self._probe_at = None
        self._in_a_row = 0
        self._round += 1
        return Change.CLOSED

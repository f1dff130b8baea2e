"""Whether a worker does what it is there for: what a liveness probe is told.

A probe that fails has the process restarted, so it fails only where a restart helps: the main loop
is blocked, or nothing is claimed although Redis answers this very process on another connection.
That Redis is away is no reason: the worker goes on by itself when it is back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CLAIMS_LIMIT_S: Final = 60.0
"""A claim loop that finishes no round for so long, while Redis answers, does not work."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a process, in seconds in which it was not frozen itself."""

    loop_silent_s: float
    """Since the main loop last ran a beat."""
    claims_silent_s: float
    """Since the claim loop last finished a round; 0 while it has nothing to do: no slot is free,
    or the worker drains."""
    redis_answers_s: float | None
    """For how long Redis has answered every ping on another connection; None while it does not."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a probe is told."""

    live: bool
    reason: str = ""
    """Why it is not live, for people."""


LIVE: Final = Verdict(live=True)


def judge(facts: Facts, *, lag_limit_s: float, claims_limit_s: float = CLAIMS_LIMIT_S) -> Verdict:
    """Decide whether a restart would help.

    The claim loop is given its whole time again when Redis comes back: both it and the answers
    must have lasted.
    """
    if facts.loop_silent_s > lag_limit_s:
        return Verdict(
            live=False, reason=f"the event loop has been blocked for {facts.loop_silent_s:.0f} s"
        )
    answered_s = facts.redis_answers_s or 0.0
    if min(facts.claims_silent_s, answered_s) > claims_limit_s:
        return Verdict(
            live=False,
            reason=f"the claim loop has finished no round for {facts.claims_silent_s:.0f} s, "
            "although Redis answers",
        )
    return LIVE

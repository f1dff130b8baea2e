"""Named moments in a session's life, for tests and chaos tools that pause or kill there.

Nothing listens in production; a moment then costs one comparison.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum


class Moment(StrEnum):
    """Where a session can be stopped to see what its successor makes of it."""

    TURN_STARTED = "turn_started"
    """The start commit is durable."""
    STEP_STARTED = "step_started"
    """The model is about to be asked."""
    DELTA = "delta"
    """A piece of streamed text was admitted; its detail is the number of the piece, from 1."""
    ASSISTANT_COMMITTED = "assistant_committed"
    """The model's answer is durable, no tool has started."""
    TOOL_STARTED = "tool_started"
    """The detail is the call id, or the name of a handler's step."""
    TOOL_DONE = "tool_done"
    """A tool or a handler's step has ended and its result is not durable yet; the detail is the
    same."""
    BEFORE_COMMIT = "before_commit"
    """The detail is the kind of commit."""
    AFTER_COMMIT = "after_commit"
    """The answer is here, nothing has been made of it; the detail is the kind of commit."""
    PARKED = "parked"
    """The turn waits without a worker; the detail is what for."""
    HANDED_OFF = "handed_off"
    """The session was given up for another worker."""


Listener = Callable[[Moment, str, str], Awaitable[None]]
"""Takes the moment, the session id and a detail; the session goes on when it returns."""

_listener: Listener | None = None


def listen(listener: Listener | None) -> None:
    """Have `listener` awaited at each moment of this process; None ends it."""
    global _listener
    _listener = listener


async def reached(moment: Moment, session_id: str, detail: str = "") -> None:
    """Say that a session is there."""
    if _listener is not None:
        await _listener(moment, session_id, detail)

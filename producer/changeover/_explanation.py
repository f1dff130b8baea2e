"""What is said of one session: the codes, and the words in which they are given."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final, Literal

from changeover_shared._items import Json, Wire
from changeover_shared._units import show_duration

Code = Literal[
    "idle",
    "running",
    "handing_off",
    "holder_silent",
    "waiting_for_slot",
    "no_worker_for_queue",
    "no_worker_for_agent",
    "format_too_new",
    "queue_paused",
    "tenant_limit",
    "queue_limit",
    "scheduled",
    "debouncing",
    "parked",
    "parked_timer",
    "rate_limited",
    "quarantined",
    "closed",
    "deleted",
    "redis_readonly",
    "redis_full",
]
"""What a session is doing or waiting for: the same words in Python, in `--json` and in logs."""

Backlog = tuple[int | None, int]
"""The session's place in its ready set, from 0, and how many are in it."""


class Explanation(Wire):
    """One session's reason, in words for people and a code for programs."""

    session_id: str
    code: Code
    text: str
    remedy: str | None = None
    """A command line, or what else to do; None when all is well."""
    facts: Mapping[str, Json] = {}


Reason = tuple[Code, str, str | None, dict[str, Json]]
"""The code, what follows the session's name in the text, the remedy and the facts of the code."""

START: Final = "changeover worker APP"


def span(ms: int) -> str:
    """So many milliseconds as people read them; 0 for what has passed."""
    return show_duration(timedelta(milliseconds=max(0, ms)))

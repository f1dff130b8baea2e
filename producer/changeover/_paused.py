"""A pause in words."""

from __future__ import annotations

from datetime import timedelta

from changeover_shared._results import Pause
from changeover_shared._units import show_duration


def paused_text(paused: Pause, now_ms: int) -> str:
    """By whom, since when and why."""
    by = f" by {paused.by}" if paused.by else ""
    since = show_duration(timedelta(milliseconds=max(0, now_ms - paused.since_ms)))
    why = f": {paused.reason}" if paused.reason else ""
    return f"paused{by} {since} ago{why}"

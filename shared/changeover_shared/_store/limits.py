"""The limits that hold for a fleet: written when it is created, the same for every process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from changeover_shared._settings import Settings
from changeover_shared._units import milliseconds

LIMITS: Final = (
    "max_message",
    "max_inbox",
    "max_inbox_bytes",
    "dedup_window",
    "journal_events",
    "turns_kept",
)
"""The settings that a process cannot have for itself."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A limit that a process was told and that its fleet does not have."""

    name: str
    mine: str
    fleet: str


def limits_of(settings: Settings) -> dict[str, int]:
    """The limits as they are stored: whole numbers, durations in milliseconds."""
    return {name: _number(getattr(settings, name)) for name in LIMITS}


def limited(
    settings: Settings, stored: Mapping[str, Any]
) -> tuple[Settings, tuple[Difference, ...]]:
    """The settings with the fleet's limits, and where they were told otherwise."""
    mine = limits_of(settings)
    differences = tuple(
        Difference(name, str(mine[name]), str(stored[name]))
        for name in LIMITS
        if name in settings.model_fields_set and mine[name] != stored[name]
    )
    update: dict[str, Any] = {name: stored[name] for name in LIMITS}
    update["dedup_window"] = timedelta(milliseconds=stored["dedup_window"])
    return settings.model_copy(update=update), differences


def _number(value: int | timedelta) -> int:
    return milliseconds(value) if isinstance(value, timedelta) else value


def longest_lease_ms(settings: Settings) -> int:
    """How far ahead a lease may end; further, and the server's clock has stepped back."""
    return 10 * milliseconds(settings.lease)

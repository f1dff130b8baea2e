"""What a session may hold before it is trimmed. Pure."""

from __future__ import annotations

from typing import Final

from changeover_shared._settings import Settings
from changeover_shared._store.records import Head

SLACK: Final = 10
"""A tenth more than is kept may gather, so that a session is trimmed now and then, not always."""


def holds_too_much(head: Head, settings: Settings) -> bool:
    """Whether the session holds a tenth more than it is to keep."""
    events = head.seq - head.first_seq + 1
    records = head.turns - head.first_turn + 1
    return any(
        held > kept + kept // SLACK
        for held, kept in ((events, settings.journal_events), (records, settings.turns_kept))
    )


def oldest_kept(head: Head, settings: Settings) -> int:
    """The number of the oldest turn whose record is kept; 1 when none has to go."""
    return max(1, head.turns - settings.turns_kept + 1)

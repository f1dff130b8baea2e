"""What a worker takes from a session that it was granted, because retention does not keep it."""

from __future__ import annotations

from typing import Final

from changeover_shared._settings import Settings
from changeover_shared._store.lease_store import LeaseStore
from changeover_shared._store.records import Head

SLACK: Final = 10
"""A tenth more than is kept may gather, so that a session is trimmed now and then, not always."""


def is_due(head: Head, settings: Settings) -> bool:
    """Whether the session holds a tenth more than it is to keep."""
    events = head.seq - head.first_seq + 1
    records = head.turns - head.first_turn + 1
    return any(
        held > kept + kept // SLACK
        for held, kept in ((events, settings.journal_events), (records, settings.turns_kept))
    )


async def trim_if_due(store: LeaseStore, settings: Settings, session_id: str, head: Head) -> None:
    """Trim the session if it holds too much. Its newest turn and its context stay whole."""
    if not is_due(head, settings):
        return
    oldest = head.turns - settings.turns_kept + 1
    record = await store.read_turn(session_id, oldest) if oldest > 1 else None
    await store.trim(
        session_id,
        events=settings.journal_events,
        records=settings.turns_kept,
        items_from=0 if record is None else record.first_item,
    )

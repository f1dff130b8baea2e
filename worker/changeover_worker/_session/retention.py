"""What a worker takes from a session that it was granted, because retention does not keep it."""

from __future__ import annotations

from typing import Final

from changeover_shared._errors import PayloadError
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
    await store.trim(
        session_id,
        events=settings.journal_events,
        records=settings.turns_kept,
        items_from=await _first_item(store, session_id, oldest) if oldest > 1 else 0,
    )


async def _first_item(store: LeaseStore, session_id: str, number: int) -> int:
    """The first transcript item of a turn; 0 when that cannot be told, and so nothing goes."""
    try:
        record = await store.read_turn(session_id, number)
    except PayloadError:
        # Its key was dropped: the session can do without that turn.
        return 0
    return 0 if record is None else record.first_item

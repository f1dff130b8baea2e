"""What a worker takes from a session that it was granted, because retention does not keep it."""

from __future__ import annotations

from changeover_shared._errors import PayloadError
from changeover_shared._settings import Settings
from changeover_shared._store.lease_store import LeaseStore
from changeover_shared._store.records import Head
from changeover_shared._store.retention import holds_too_much, oldest_kept


async def trim_if_due(store: LeaseStore, settings: Settings, session_id: str, head: Head) -> None:
    """Trim the session if it holds too much. Its newest turn and its context stay whole."""
    if not holds_too_much(head, settings):
        return
    oldest = oldest_kept(head, settings)
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

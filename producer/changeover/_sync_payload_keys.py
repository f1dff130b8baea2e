# Written by tools/generate_sync.py from _payload_keys.py: change that file instead.
"""Which payload keys what is stored needs: what an operator asks before a key is dropped."""

from __future__ import annotations

from collections import Counter
from typing import Final

from changeover_shared._results import PayloadKey
from changeover_shared._store.sync_store import SyncStore

LISTED: Final = 500


def payload_keys(store: SyncStore) -> tuple[PayloadKey, ...]:
    """Count what each key has encrypted, over all sessions, what deleted ones have left, and
    schedules."""
    joining = store.upkeep.secret_key()
    values: Counter[str] = Counter([joining] if joining else [])
    sessions: Counter[str] = Counter()
    place: tuple[int, str] | None = None
    while True:
        listed = store.catalogue(before=place, limit=LISTED)
        for _, session_id in listed:
            found = store.upkeep.payload_keys(session_id)
            values.update(found)
            sessions.update(found.keys())
        if len(listed) < LISTED:
            break
        place = listed[-1]
    for at in store.keys.all:
        for session_id in store.upkeep.graves(at.partition, limit=0):
            found = store.upkeep.payload_keys(session_id)
            values.update(found)
            sessions.update(found.keys())
    values.update(store.schedules.payload_keys())
    return tuple(
        PayloadKey(key_id=key_id or None, values=count, sessions=sessions[key_id])
        for key_id, count in sorted(values.items())
    )

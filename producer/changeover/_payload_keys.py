"""Which payload keys what is stored needs: what an operator asks before a key is dropped."""

from __future__ import annotations

from collections import Counter
from typing import Final

from changeover_shared._results import PayloadKey
from changeover_shared._store.store import Store

LISTED: Final = 500


async def payload_keys(store: Store) -> tuple[PayloadKey, ...]:
    """Count what each key has encrypted, over all sessions, what deleted ones have left, and
    schedules."""
    joining = await store.upkeep.secret_key()
    values: Counter[str] = Counter([joining] if joining else [])
    sessions: Counter[str] = Counter()
    place: tuple[int, str] | None = None
    while True:
        listed = await store.catalogue(before=place, limit=LISTED)
        for _, session_id in listed:
            found = await store.upkeep.payload_keys(session_id)
            values.update(found)
            sessions.update(found.keys())
        if len(listed) < LISTED:
            break
        place = listed[-1]
    for at in store.keys.all:
        for session_id in await store.upkeep.graves(at.partition, limit=0):
            found = await store.upkeep.payload_keys(session_id)
            values.update(found)
            sessions.update(found.keys())
    values.update(await store.schedules.payload_keys())
    return tuple(
        PayloadKey(key_id=key_id or None, values=count, sessions=sessions[key_id])
        for key_id, count in sorted(values.items())
    )

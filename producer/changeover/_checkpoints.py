"""What a session's checkpoint says, as far as it can be read here. No I/O here."""

from __future__ import annotations

from changeover_shared._checkpoint import Checkpoint, decode_checkpoint
from changeover_shared._errors import FormatTooNew
from changeover_shared._store.records import Snapshot


def checkpoint_of(snapshot: Snapshot) -> Checkpoint:
    """The checkpoint; an empty one before the first commit or when only others can read it."""
    empty = Checkpoint(session_id=snapshot.session_id)
    if snapshot.checkpoint is None:
        return empty
    try:
        return decode_checkpoint(snapshot.checkpoint, session_id=snapshot.session_id)
    except (FormatTooNew, ValueError):
        return empty

"""What lies in a session's inbox: the submissions that wait, and those of the open turn."""

from __future__ import annotations

import json

from changeover.cli._output import clock, one_line
from changeover_shared._errors import UnknownSession
from changeover_shared._identifiers import identifier
from changeover_shared._items import Json, Wire
from changeover_shared._results import shown_time
from changeover_shared._server.url import redis_url
from changeover_shared._settings import read_settings
from changeover_shared._store.store import Store


class InboxItem(Wire):
    """One submission that has not ended."""

    n: int
    """Its position: submissions are taken in this order."""
    submission_id: str
    turn_id: str | None
    """The turn that holds it; None while it waits."""
    size: int
    """Bytes."""
    accepted_at_ms: int
    due_at_ms: int | None
    """When it may run; None for at once."""
    op: Json
    """What was submitted."""


async def read_inbox(session: str, url: str | None) -> tuple[InboxItem, ...]:
    """What has not ended, newest first. Raises `UnknownSession`."""
    session_id = identifier(session, field="session")
    settings = read_settings()
    store = await Store.open(redis_url(url, settings), settings)
    try:
        snapshot = await store.snapshot(session_id)
        entries = await store.inbox(session_id)
    finally:
        await store.aclose()
    if snapshot is None:
        raise UnknownSession(session_id=session_id)
    open_ones = {waiting.n: waiting for waiting in snapshot.work.waiting}
    return tuple(
        InboxItem(
            n=entry.n,
            submission_id=entry.submission_id,
            turn_id=open_ones[entry.n].turn or None,
            size=open_ones[entry.n].size,
            accepted_at_ms=entry.accepted_ms,
            due_at_ms=open_ones[entry.n].due_ms or None,
            op=json.loads(entry.body),
        )
        for entry in reversed(entries)
        if entry.n in open_ones
    )


def inbox_line(item: InboxItem) -> str:
    """An item as people read it."""
    op = item.op if isinstance(item.op, dict) else {}
    what = op.get("text") or op.get("model") or op.get("type")
    until = f" until {shown_time(item.due_at_ms)}" if item.due_at_ms else ""
    where = f"in {item.turn_id}" if item.turn_id else f"waits{until}"
    return (
        f"{item.n:>6}  {clock(item.accepted_at_ms)}  {where}  {item.submission_id}  "
        f"{one_line(str(what))}"
    )

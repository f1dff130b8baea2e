"""What keeps a session from going on, or from taking messages, beside itself: its server, and what
is full. No I/O here."""

from __future__ import annotations

from collections.abc import Mapping

from changeover._explanation import Explanation, Reason
from changeover_shared._items import Json
from changeover_shared._sizes import show_size
from changeover_shared._store.records import EVERYBODY, Refusals

READONLY = (
    "its server is a replica and takes no writes, so nothing of it changes",
    "use the URL of its primary, or wait until one is promoted",
)
_FREE_MEMORY = "changeover purge and delete free memory; CONFIG SET maxmemory <more>"


def on_a_replica(session_id: str) -> Explanation:
    """What is said when the server that was asked takes no writes."""
    text, remedy = READONLY
    return Explanation(
        session_id=session_id, code="redis_readonly", text=f"{session_id}: {text}", remedy=remedy
    )


def hindered(reason: Reason, tenant: str, server: Mapping[str, str], refusals: Refusals) -> Reason:
    """The reason as it is with the server's state (INFO; empty when it was not seen) and with what
    is refused there."""
    code, text, remedy, facts = reason
    if code in ("quarantined", "closed", "deleted"):
        return reason
    if server.get("role", "master") != "master":
        return "redis_readonly", f"waits: {READONLY[0]}", READONLY[1], facts
    used = int(server.get("used_memory", 0)) - int(server.get("mem_not_counted_for_evict", 0))
    limit = int(server.get("maxmemory", 0))
    if 0 < limit <= used:
        said = f"{show_size(used)} of maxmemory {show_size(limit)} are used"
        return "redis_full", f"waits for memory: {said}, Redis refuses writes", _FREE_MEMORY, facts
    full = [one for one in refusals.full if one.whose in (EVERYBODY, tenant)]
    scopes: list[Json] = [
        *("fleet" if one.whose == EVERYBODY else "tenant" for one in full),
        *(["memory"] if refusals.memory else []),
    ]
    if not scopes:
        return reason
    facts = {**facts, "refuses": scopes}
    if code != "idle":
        return code, text, remedy, facts
    if refusals.memory:
        used, limit = refusals.memory
        said = f"{show_size(used)} of {show_size(limit)} are used"
        return "redis_full", f"takes no messages: memory is short, {said}", _FREE_MEMORY, facts
    counts = " and ".join(
        f"{one.depth} submissions of {'the fleet' if one.whose == EVERYBODY else 'its tenant'} "
        f"wait and {one.limit} may"
        for one in full
    )
    return code, f"{text}; it takes no messages: {counts}", remedy, facts

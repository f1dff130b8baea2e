"""Where it is counted how many sessions run. Pure."""

from __future__ import annotations

from changeover_shared._store.keys import Keys, LimitKind
from changeover_shared._store.records import Caps, Permit


def counted_in(keys: Keys, asked: Permit, caps: Caps) -> tuple[tuple[LimitKind, str], ...]:
    """What limits a session: of which kind, and where that is counted."""
    found: list[tuple[LimitKind, str]] = []
    if caps.tenant is not None and asked.tenant:
        found.append(("tenant", keys.limits.permits("tenant", asked.tenant)))
    if caps.queue is not None:
        found.append(("queue", keys.limits.permits("queue", asked.queue)))
    return tuple(found)

"""The life of a session: the diagram and the table, from the transition table."""

from __future__ import annotations

from typing import Final

from changeover_shared._store.state import COLUMNS, TRANSITIONS, Trigger, after
from changeover_shared._words import Status

LABELS: Final = 3
"""How many triggers an arrow names; the table has all."""


def diagram() -> str:
    """The statuses and what leads from one to another; what changes nothing is left out."""
    lines = ["```mermaid", "stateDiagram-v2"]
    for before in COLUMNS:
        for status in Status:
            named = [t.value for t in Trigger if status in after(before, t) and status != before]
            if named:
                more = f", +{len(named) - LABELS}" if len(named) > LABELS else ""
                start = before.value if before else "[*]"
                label = ", ".join(named[:LABELS]) + more
                lines.append(f"    {start} --> {status.value}: {label}")
    return "\n".join([*lines, "```"])


def table() -> str:
    """Every trigger in every status."""
    rows = [
        ["what happens", *(before.value if before else "unknown" for before in COLUMNS)],
        ["---"] * (len(COLUMNS) + 1),
        *([trigger.value, *(_cell(before, trigger) for before in COLUMNS)] for trigger in Trigger),
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(before: Status | None, trigger: Trigger) -> str:
    words = TRANSITIONS[before, trigger]
    reached = [status.value for status in Status if status.value in words]
    refused = sorted(f"`{word}`" for word in words if word.isupper())
    return ", ".join(reached + refused)

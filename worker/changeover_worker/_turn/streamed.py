"""Streamed text after its step: the committed text counts, the deltas go a little later.

A follower a moment behind still reads the end of a sentence piece by piece; one that comes later
finds the committed message and the numbers that may be missing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from changeover_shared._checkpoint import Checkpoint, Streamed
from changeover_worker._turn.draft import Draft

KEPT_MS: Final = 10_000
"""How long after its step a delta stays at least."""
DROPPED_AT_ONCE: Final = 2_000
"""How many deltas one commit deletes at most."""


def with_streamed(
    checkpoint: Checkpoint, ranges: tuple[tuple[int, int], ...], now_ms: int
) -> Checkpoint:
    """Remember the deltas of a step that is completed."""
    if not ranges:
        return checkpoint
    fresh = (Streamed(first=first, last=last, completed_ms=now_ms) for first, last in ranges)
    return checkpoint.model_copy(update={"streamed": (*checkpoint.streamed, *fresh)})


def forget_streamed(draft: Draft, now_ms: int) -> Draft:
    """Let the commit delete the deltas whose time is over."""
    streamed = draft.checkpoint.streamed
    drops: list[int] = []
    kept = list(streamed)
    while kept and kept[0].completed_ms + KEPT_MS <= now_ms and len(drops) < DROPPED_AT_ONCE:
        oldest = kept.pop(0)
        last = min(oldest.last, oldest.first + DROPPED_AT_ONCE - len(drops) - 1)
        drops += range(oldest.first, last + 1)
        if last < oldest.last:
            kept.insert(0, oldest.model_copy(update={"first": last + 1}))
    if not drops:
        return draft
    checkpoint = draft.checkpoint.model_copy(update={"streamed": tuple(kept)})
    return replace(draft, checkpoint=checkpoint, drop_seqs=tuple(drops))

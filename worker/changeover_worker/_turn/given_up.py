"""A turn that an operator has given up while the session was quarantined.

The store has ended it without a worker, so the checkpoint still has it. What it has written into
the transcript stands there in whole groups; what was open is in the checkpoint alone and goes.
"""

from __future__ import annotations

from changeover_shared._checkpoint import Checkpoint
from changeover_shared._items import MAX_COUNT


def without_given_up(checkpoint: Checkpoint, turn_id: str) -> Checkpoint:
    """The checkpoint of a session whose open turn is `turn_id`, '' for none: a turn that is over
    is taken out of it, and counted as aborted."""
    over = checkpoint.execution
    if over is None or over.turn_id == turn_id:
        return checkpoint
    stats = checkpoint.stats
    if stats.turns >= MAX_COUNT:
        return checkpoint.model_copy(update={"execution": None})
    counted = stats.model_copy(
        update={
            "turns": stats.turns + 1,
            "aborted_turns": stats.aborted_turns + 1,
            "model_calls": _sum(stats.model_calls, over.model_calls),
            "tool_calls": _sum(stats.tool_calls, over.tool_calls),
            "failed_tool_calls": _sum(stats.failed_tool_calls, over.failed_tool_calls),
            "usage": stats.usage + over.usage,
        }
    )
    return checkpoint.model_copy(update={"execution": None, "stats": counted})


def _sum(before: int, more: int) -> int:
    """What has no room is not counted: the turn is over, whatever can be said of it."""
    return min(MAX_COUNT, before + more)

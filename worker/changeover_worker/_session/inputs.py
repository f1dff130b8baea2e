"""The inputs that a turn takes, with their bodies: what it starts with, and what steers it."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError

from changeover_shared._ops import InterruptOp, Op, decode_op
from changeover_shared._store.records import InboxEntry, Waiting
from changeover_worker._session.commits import Stale
from changeover_worker._session.running import Running
from changeover_worker._turn.draft import Setup, Taken
from changeover_worker._turn.joining import composed, may_join, most_of_a_turn, steering

Inputs = tuple[InboxEntry, tuple[Taken, ...]]
"""A turn's first input, and what joins it."""


def op_of(entry: InboxEntry) -> Op:
    """What an input asks for. What this release does not know reads as an interrupt, which no
    turn can carry out."""
    try:
        return decode_op(entry.body)
    except ValidationError:
        return InterruptOp()


async def next_inputs(
    running: Running, setup: Setup
) -> tuple[InboxEntry, tuple[Taken, ...]] | None:
    """What the next turn starts with; None when nothing is due.

    Raises `Stale` when its first input was settled meanwhile.
    """
    loaded = running.loaded
    await loaded.read_arrivals()
    due = loaded.due_inputs(running.now_ms)
    if not due:
        return None
    first, *more = composed(due, steered=setup.asks)
    entry = await loaded.body(first.n)
    if entry is None:
        raise Stale("INPUT")
    if not more or not may_join(op_of(entry), setup.models):
        return entry, ()
    if not first.group:
        more = more[: most_of_a_turn(running.settings.max_inbox) - 1]
    return entry, await _joining(running, more, setup)


async def waiting_steers(running: Running, setup: Setup) -> tuple[Taken, ...]:
    """Look for what steers the open turn, in order."""
    await running.loaded.look_for_arrivals()
    due = running.loaded.due_inputs(running.now_ms)
    execution = running.loaded.checkpoint.execution
    taken = len(execution.submission_ids) if execution is not None else 0
    room = max(0, most_of_a_turn(running.settings.max_inbox) - taken)
    return await _joining(running, steering(due)[:room], setup)


async def _joining(running: Running, waiting: Sequence[Waiting], setup: Setup) -> tuple[Taken, ...]:
    """Those that may join, up to the first that may not: none is overtaken by its neighbour."""
    found: list[Taken] = []
    for one in waiting:
        entry = await running.loaded.body(one.n)
        op = None if entry is None else op_of(entry)
        if op is None or isinstance(op, InterruptOp) or not may_join(op, setup.models):
            break
        found.append(Taken(one.n, one.submission_id, op))
    return tuple(found)

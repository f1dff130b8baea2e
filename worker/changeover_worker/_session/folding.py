"""Which waiting messages end with a turn that its takeover aborts."""

from __future__ import annotations

from pydantic import ValidationError

from changeover_shared._checkpoint import Execution
from changeover_shared._ops import MessageOp, decode_op
from changeover_shared._store.records import InboxEntry
from changeover_worker._session.running import Running
from changeover_worker._turn.draft import Folded
from changeover_worker._turn.joining import user_message
from changeover_worker._turn.recovery import aborts


async def to_fold(running: Running, execution: Execution) -> tuple[Folded, ...]:
    """What waits and only wants to be heard, in order, if the agent has it folded.

    It ends before the first input that asks for more: another operation, a model, metadata.
    """
    agent, loaded = running.agent, running.loaded
    if agent.on_abort_input != "fold" or not aborts(execution, agent.on_takeover):
        return ()
    await loaded.read_arrivals()
    found: list[Folded] = []
    for waiting in loaded.due_inputs(running.now_ms):
        entry = await loaded.body(waiting.n)
        op = None if entry is None or waiting.group else _plain_message(entry)
        if op is None:
            break
        found.append(
            Folded(waiting.n, waiting.submission_id, user_message(op, waiting.submission_id))
        )
    return tuple(found)


def _plain_message(entry: InboxEntry) -> MessageOp | None:
    try:
        op = decode_op(entry.body)
    except ValidationError:
        return None
    if not isinstance(op, MessageOp) or op.model is not None or op.metadata is not None:
        return None
    return op

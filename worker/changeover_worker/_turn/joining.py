"""What a turn takes beyond its first input: its neighbours when it starts, and steers at each step
boundary. Pure.

One rule for steers: each commit that opens a step of an agent's turn takes all that wait, and
writes them behind the results that the step before has left.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace

from changeover_shared._checkpoint import Checkpoint, Execution
from changeover_shared._events import Event, ModelChanged, SubmissionMerged
from changeover_shared._items import UserMessage
from changeover_shared._ops import MessageOp
from changeover_shared._store.records import Waiting
from changeover_worker._turn.draft import Onward, Taken
from changeover_worker._turn.execution import open_step


def composed(due: Sequence[Waiting], *, steered: bool) -> tuple[Waiting, ...]:
    """What the next turn may take: the first input that is due and what belongs to it, in order.

    What a turn gave back together is taken together. Else neighbours that join by one key make one
    turn, and with `steered` the steers that wait are part of it from its beginning.
    """
    first, *rest = due
    if first.group:
        return tuple(one for one in due if one.group == first.group)
    steers = [one for one in rest if steered and one.kind == "steer" and not one.group]
    joined = [first]
    for one in rest:
        if one in steers:
            continue
        if first.kind != "join" or (one.kind, one.key, one.group) != ("join", first.key, ""):
            break
        joined.append(one)
    return tuple(sorted((*joined, *steers), key=lambda one: one.n))


def steering(due: Sequence[Waiting]) -> tuple[Waiting, ...]:
    """What an open turn may take, in order."""
    return tuple(one for one in due if one.kind == "steer" and not one.group)


def most_of_a_turn(max_inbox: int) -> int:
    """How many submissions one turn takes in at most: half of what its session may hold, since what
    a turn has taken is open until it ends. So whoever steers without end leaves room for others,
    and the rest is the next input."""
    return max(1, max_inbox // 2)


def may_join(op: object, models: Container[str]) -> bool:
    """Whether an op can be part of a turn that answers others as well: a message that does not
    fail by itself."""
    return isinstance(op, MessageOp) and (op.model is None or op.model in models)


def user_message(op: MessageOp, submission_id: str) -> UserMessage:
    """A message as the transcript keeps it."""
    return UserMessage(
        text=op.text,
        attachments=op.attachments,
        author=op.author,
        submission_id=submission_id,
        reply_to=op.reply_to,
    )


def channels(messages: Iterable[UserMessage], *, before: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The channels that a turn's answer goes to: each once, behind those that it had before."""
    named = (message.reply_to for message in messages)
    return tuple(dict.fromkeys((*before, *(channel for channel in named if channel))))


def settled_by(
    checkpoint: Checkpoint, op: MessageOp, turn_id: str
) -> tuple[Checkpoint, tuple[Event, ...]]:
    """The checkpoint with what a message says of its session beside its text."""
    if op.metadata is not None:
        checkpoint = checkpoint.model_copy(update={"metadata": op.metadata})
    if op.model in (None, checkpoint.model):
        return checkpoint, ()
    # No submission id: a message ends with its turn, not with a change of the model.
    changed = ModelChanged(model=str(op.model), previous=checkpoint.model, turn_id=turn_id)
    return checkpoint.model_copy(update={"model": op.model}), (changed,)


def merged(execution: Execution, submission_ids: Sequence[str]) -> tuple[Event, ...]:
    """Tell that submissions are part of a turn that answers its first one as well."""
    return tuple(
        SubmissionMerged(
            by=execution.submission_ids[0], submission_id=one, turn_id=execution.turn_id
        )
        for one in submission_ids
    )


@dataclass(frozen=True, slots=True)
class TakenIn:
    """An open turn with more inputs than before."""

    checkpoint: Checkpoint
    execution: Execution
    take: tuple[int, ...] = ()
    items: tuple[UserMessage, ...] = ()
    events: tuple[Event, ...] = ()


def take_in(checkpoint: Checkpoint, execution: Execution, steers: Sequence[Taken]) -> TakenIn:
    """Make steers part of an open turn; all of them may join."""
    items: list[UserMessage] = []
    events: list[Event] = []
    for one in steers:
        assert isinstance(one.op, MessageOp), "only messages steer"
        checkpoint, changed = settled_by(checkpoint, one.op, execution.turn_id)
        items.append(user_message(one.op, one.submission_id))
        events += [*merged(execution, (one.submission_id,)), *changed]
    names = (*execution.submission_ids, *(one.submission_id for one in steers))
    return TakenIn(
        checkpoint,
        execution.model_copy(
            update={
                "submission_ids": names,
                "reply_to": channels(items, before=execution.reply_to),
            }
        ),
        tuple(one.n for one in steers),
        tuple(items),
        tuple(events),
    )


def next_step(
    checkpoint: Checkpoint, execution: Execution, onward: Onward, *, now_ms: int
) -> TakenIn:
    """Open the model step that is next with the steers that wait; or leave the turn at the
    boundary, and them where they are."""
    if onward.step_id is None:
        return TakenIn(checkpoint, execution)
    before = checkpoint.model
    found = take_in(checkpoint, execution, onward.steers)
    changed = found.checkpoint.model
    model = onward.model if changed == before else str(changed)
    opened, began = open_step(found.execution, step_id=onward.step_id, model=model, now_ms=now_ms)
    return replace(found, execution=opened, events=(*found.events, began))

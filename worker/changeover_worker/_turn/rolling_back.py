"""What a rollback leaves out of the context: turns, whose calls had run all the same.

The transcript keeps them. Where they stood, the model is told which calls had run, so that it
does not make them again as if nothing had happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from changeover_shared._checkpoint import Checkpoint, LeftOut
from changeover_shared._events import ContextRolledBack, Failure
from changeover_shared._items import (
    AnyItem,
    AssistantMessage,
    Item,
    StepRecord,
    ToolResult,
    UserMessage,
)
from changeover_shared._results import TurnRecord
from changeover_worker._turn.context import encode_prefix
from changeover_worker._turn.draft import Draft
from changeover_worker._turn.execution import open_execution
from changeover_worker._turn.offload import READ_RESULT
from changeover_worker._turn.rewriting import rewritten

NAMED: Final = 50
"""How many calls a note names, the newest ones."""
ARGUMENTS: Final = 200
"""How many characters of a call's arguments."""


@dataclass(frozen=True, slots=True)
class Past:
    """What a rollback has to know of the session's past."""

    record: TurnRecord | None = None
    """Of the turn that it names, if that has one."""
    items: Sequence[AnyItem] = ()
    """The transcript from the checkpoint's `context_from` on."""


NO_PAST: Final = Past()


def rolled_back(
    checkpoint: Checkpoint, to: str, past: Past
) -> tuple[Checkpoint, ContextRolledBack] | Failure:
    """Leave a finished turn and all later ones out, or say why that cannot be done."""
    record, items, begin = past.record, past.items, checkpoint.context_from
    if record is None:
        return _failure("unknown_turn", f"the session has no finished turn {to!r:.80}")
    if record.first_item < begin:
        return _failure("compacted", f"{to} is part of a summary by now")
    if any(r.first <= record.first_item <= r.last for r in checkpoint.left_out):
        return _failure("rolled_back", f"{to} was rolled back before")
    changed = without(checkpoint, items, record.first_item, begin + len(items) - 1)
    ran = calls_of(items[record.first_item - begin :])
    return changed, ContextRolledBack(to=to, tools=tuple(ran))


def aborted_without(
    draft: Draft, before: Checkpoint, prefix: Sequence[Item], items: Sequence[AnyItem]
) -> Draft:
    """The same abort, its turn left out of the context as well. `items` as above, before it."""
    execution = open_execution(before)
    whole = (*items, *draft.items)
    began = execution.first_item or before.context_from + len(items)
    first = max(began, before.context_from)
    last = before.context_from + len(whole) - 1
    checkpoint = without(draft.checkpoint, whole, first, last)
    ran = calls_of(whole[first - before.context_from :])
    said = ContextRolledBack(to=execution.turn_id, tools=tuple(ran), turn_id=execution.turn_id)
    # Before the event that ends the turn: whoever waits for that one has seen this one.
    events = (*draft.events[:-1], said, *draft.events[-1:])
    changed = replace(draft, checkpoint=checkpoint, events=events)
    left = [item for item in prefix if not _is_of(item, execution.submission_ids)]
    if len(left) == len(prefix):
        return changed
    return replace(
        changed,
        checkpoint=rewritten(checkpoint, checkpoint.context_from),
        prefix=encode_prefix(left),
    )


def without(checkpoint: Checkpoint, items: Sequence[AnyItem], first: int, last: int) -> Checkpoint:
    """Leave out the items from `first` to `last`, together with what borders on them and is left
    out already."""
    if first > last:
        return checkpoint
    kept = [r for r in checkpoint.left_out if r.last < first]
    if kept and kept[-1].last + 1 == first:
        first = kept.pop().first
    at = checkpoint.context_from
    note = _note(calls_of(items[max(first, at) - at : last - at + 1]))
    return checkpoint.model_copy(
        update={"left_out": (*kept, LeftOut(first=first, last=last, note=note))}
    )


def calls_of(items: Iterable[AnyItem]) -> list[str]:
    """The calls and steps that have run, or may have, as a person writes them."""
    asked: dict[str, str] = {}
    found: list[str] = []
    for item in items:
        match item:
            case AssistantMessage():
                asked |= {call.call_id: call.arguments for call in item.tool_calls}
            case ToolResult() if item.name != READ_RESULT:
                given = asked.get(item.call_id, "")
                cut = given if len(given) <= ARGUMENTS else f"{given[:ARGUMENTS]}…"
                found.append(f"{item.name}({cut}){_mark(item)}")
            case StepRecord(kind="step"):
                found.append(f"step {item.name}{_mark(item)}")
    return found


def _mark(item: ToolResult | StepRecord) -> str:
    if item.unknown:
        return ": may have run"
    return ": failed" if item.is_error else ""


def _note(calls: Sequence[str]) -> str:
    if not calls:
        return ""
    more = len(calls) - NAMED
    lines = [f"- {call}" for call in calls[-NAMED:]]
    if more > 0:
        lines.insert(0, f"- {more} earlier ones")
    told = "\n".join(lines)
    return (
        "[A part of the conversation was taken back here. These calls had run in it; what they did "
        f"is not undone, so do not make them again unless asked to:\n{told}]"
    )


def _is_of(item: Item, submissions: Sequence[str]) -> bool:
    return isinstance(item, UserMessage) and item.submission_id in submissions


def _failure(kind: str, what: str) -> Failure:
    return Failure(kind=kind, message=f"{what}; the context was left as it is")

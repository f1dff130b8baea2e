"""What a model is shown: a rewritten prefix and the transcript after it, less what a rollback
left out, with large results cut short. A projection: nothing is ever rewritten in the transcript.

A context is valid when it begins with a user's message and every call is followed by its result,
in the order of the calls. What is stored is valid; if it is damaged all the same, it is mended on
its way to the model, so that the session can go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import TypeAdapter
from pydantic_core import to_json

from changeover_shared._checkpoint import LeftOut
from changeover_shared._items import (
    AnyItem,
    AssistantMessage,
    Item,
    StepRecord,
    ToolCall,
    ToolResult,
    UserMessage,
)

NARRATOR: Final = "changeover"
"""The author of what this package itself tells a model in a conversation."""
LOST_BEGINNING: Final = "[The beginning of this conversation could not be read and is left out.]"
LOST_RESULT: Final = "the result of this call is not known"

_PREFIX: TypeAdapter[list[Item]] = TypeAdapter(list[Item])


@dataclass(frozen=True, slots=True)
class Entry:
    """One item that is shown, with its number in the transcript."""

    n: int
    """0 for an item of the rewritten prefix; the first hidden number for a rollback's note."""
    item: Item


def decode_prefix(body: bytes | str | None) -> tuple[Item, ...]:
    """Read a rewritten prefix. Raises `ValueError` for one that is missing or damaged."""
    if body is None:
        raise ValueError("the rewritten context is missing")
    return tuple(_PREFIX.validate_json(body))


def encode_prefix(items: Sequence[Item]) -> str:
    """Write a rewritten prefix."""
    return to_json(list(items)).decode()


def narration(text: str) -> UserMessage:
    """Something that this package tells the model."""
    return UserMessage(text=text, author=NARRATOR)


def entries(
    prefix: Iterable[Item], items: Sequence[AnyItem], first: int, left_out: Sequence[LeftOut]
) -> tuple[Entry, ...]:
    """What is left of `items`, the transcript from number `first` on, behind the prefix."""
    found = [Entry(0, item) for item in prefix]
    hidden = list(left_out)
    for n, item in enumerate(items, first):
        while hidden and hidden[0].last < n:
            hidden.pop(0)
        if hidden and hidden[0].first <= n:
            if n == max(hidden[0].first, first) and hidden[0].note:
                found.append(Entry(n, narration(hidden[0].note)))
        elif not isinstance(item, StepRecord):
            found.append(Entry(n, item))
    return tuple(found)


def flaw(items: Sequence[Item]) -> str:
    """Say what makes a context invalid; '' for a valid one."""
    if not items or not isinstance(items[0], UserMessage):
        return "it does not begin with a user's message"
    due: list[str] = []
    for item in items:
        if isinstance(item, ToolResult):
            if not due or due.pop(0) != item.call_id:
                return f"the result of {item.call_id!r} does not follow its call"
        elif due:
            return f"the call {due[0]!r} has no result"
        elif isinstance(item, AssistantMessage):
            due = [call.call_id for call in item.tool_calls]
    return f"the call {due[0]!r} has no result" if due else ""


def mended(items: Sequence[Item]) -> tuple[Item, ...]:
    """Make a context valid: lost results become errors, results without a call are left out."""
    if not flaw(items):
        return tuple(items)
    found: list[Item] = []
    at = 0
    while at < len(items):
        item = items[at]
        at += 1
        if isinstance(item, ToolResult):
            continue
        found.append(item)
        if isinstance(item, AssistantMessage) and item.tool_calls:
            end = at
            while end < len(items) and isinstance(items[end], ToolResult):
                end += 1
            found += _paired(item.tool_calls, items[at:end])
            at = end
    if not found or not isinstance(found[0], UserMessage):
        found.insert(0, narration(LOST_BEGINNING))
    return tuple(found)


def _paired(calls: Iterable[ToolCall], results: Iterable[Item]) -> list[ToolResult]:
    known = {item.call_id: item for item in results if isinstance(item, ToolResult)}
    return [known.get(call.call_id) or _lost(call) for call in calls]


def _lost(call: ToolCall) -> ToolResult:
    return ToolResult(
        call_id=call.call_id, name=call.name, output=LOST_RESULT, is_error=True, unknown=True
    )

"""Items of conversations, in few words."""

from __future__ import annotations

from changeover_shared._items import (
    AssistantMessage,
    Item,
    ToolCall,
    ToolResult,
    UserMessage,
)
from changeover_worker._turn.context import (
    Entry,
)


def user(text: str = "u", submission: str | None = None) -> UserMessage:
    return UserMessage(text=text, submission_id=submission)


def asks(*ids: str, text: str = "") -> AssistantMessage:
    calls = tuple(ToolCall(call_id=i, name=f"tool_{i}", arguments='{"a": 1}') for i in ids)
    return AssistantMessage(text=text, tool_calls=calls)


def says(text: str = "a") -> AssistantMessage:
    return AssistantMessage(text=text)


def got(id: str, output: object = "done", **given: bool) -> ToolResult:
    return ToolResult.model_validate(
        {"call_id": id, "name": f"tool_{id}", "output": output, **given}
    )


def numbered(*items: Item, first: int = 1) -> tuple[Entry, ...]:
    return tuple(Entry(n, item) for n, item in enumerate(items, first))


def said(item: Item) -> str:
    assert isinstance(item, UserMessage)
    return item.text


def one_turn(text: str, *, size: int = 0) -> list[Item]:
    return [user(text), says("x" * size or "ok")]

"""Writes a conversation as Anthropic's messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from changeover_shared._items import (
    AssistantMessage,
    Item,
    ToolCall,
    ToolResult,
    UserMessage,
)
from changeover_worker._models.answer import word
from changeover_worker._models.contents import (
    Opaque,
    Text,
    arguments_object,
    attachment_line,
    call_name,
    is_image,
    parts,
    plain,
    result_text,
)
from changeover_worker._models.model import ModelRequest

_SERVER_CALLS: Final = frozenset({"server_tool_use", "mcp_tool_use"})


def body(request: ModelRequest, provider: str) -> dict[str, Any]:
    """Write a request. Neighbours of one role become one message, as the results of calls must."""
    messages: list[dict[str, Any]] = []
    left_open = _left_open(request.items, provider)
    for item in request.items:
        role = "assistant" if isinstance(item, AssistantMessage) else "user"
        blocks = [block for block in _blocks(item, provider) if block.get("id") not in left_open]
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"].extend(blocks)
        elif blocks:
            messages.append({"role": role, "content": blocks})
    fields: dict[str, Any] = {"messages": messages}
    if request.instructions:
        fields["system"] = request.instructions
    if request.tools:
        fields["tools"] = [
            {
                "name": tool.name,
                "description": tool.description,
                "input_schema": dict(tool.parameters),
            }
            for tool in request.tools
        ]
    return fields


def _left_open(items: tuple[Item, ...], provider: str) -> set[str]:
    """The ids of calls of server-side tools that will never have a result, which is refused.

    An answer may end with one, at its length limit for example. It gets its result when the
    answer goes on: at once, or after the results of the calls beside it.
    """
    lost: set[str] = set()
    waiting: set[str] = set()
    before: Item | None = None
    for item in items:
        if isinstance(item, AssistantMessage):
            blocks = [part.block for part in parts(item, provider) if isinstance(part, Opaque)]
            answered = {word(block, "tool_use_id") for block in blocks}
            begun = {word(block, "id") for block in blocks if word(block, "type") in _SERVER_CALLS}
            lost |= waiting - answered
            waiting = begun - answered
        elif isinstance(item, UserMessage) and isinstance(before, AssistantMessage):
            lost |= waiting
            waiting = set()
        before = item
    return lost


def _blocks(item: Item, provider: str) -> Iterator[dict[str, Any]]:
    if isinstance(item, UserMessage):
        yield from _user_blocks(item)
    elif isinstance(item, ToolResult):
        yield {
            "type": "tool_result",
            "tool_use_id": plain(item.call_id),
            "content": result_text(item),
            "is_error": item.is_error,
        }
    else:
        for part in parts(item, provider):
            yield _assistant_block(part)


def _user_blocks(item: UserMessage) -> Iterator[dict[str, Any]]:
    # Blank text is refused.
    if item.text.strip():
        yield {"type": "text", "text": item.text}
    for each in item.attachments:
        if is_image(each):
            yield {"type": "image", "source": {"type": "url", "url": each.url}}
        else:
            yield {"type": "text", "text": attachment_line(each)}


def _assistant_block(part: Text | ToolCall | Opaque) -> dict[str, Any]:
    if isinstance(part, Opaque):
        return part.block
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    return {
        "type": "tool_use",
        "id": plain(part.call_id),
        "name": call_name(part.name),
        "input": arguments_object(part.arguments),
    }

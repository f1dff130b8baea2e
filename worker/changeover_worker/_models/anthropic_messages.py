"""The dialect of Anthropic's messages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from changeover_shared._items import (
    AssistantMessage,
    Item,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from changeover_worker._models.answer import Answer, number, word
from changeover_worker._models.contents import (
    Opaque,
    Text,
    arguments_object,
    attachment_line,
    is_image,
    parts,
    result_text,
)
from changeover_worker._models.model import ModelDelta, ModelRequest, ModelResponse
from changeover_worker._models.stream import Event

_STOPS: Final = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}
_FOREIGN_ID: Final = re.compile(r"[^a-zA-Z0-9_-]")


def body(request: ModelRequest, provider: str) -> dict[str, Any]:
    """Write a request. Neighbours of one role become one message, as the results of calls must."""
    messages: list[dict[str, Any]] = []
    for item in request.items:
        role = "assistant" if isinstance(item, AssistantMessage) else "user"
        blocks = list(_blocks(item, provider))
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


def _blocks(item: Item, provider: str) -> Iterator[dict[str, Any]]:
    if isinstance(item, UserMessage):
        yield from _user_blocks(item)
    elif isinstance(item, ToolResult):
        yield {
            "type": "tool_result",
            "tool_use_id": _own_id(item.call_id),
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
        "id": _own_id(part.call_id),
        "name": part.name,
        "input": arguments_object(part.arguments),
    }


def _own_id(call_id: str) -> str:
    """Ids of other providers may hold characters that are refused here."""
    return _FOREIGN_ID.sub("_", call_id)


class Assembly:
    """Puts the events of one answer together."""

    def __init__(self, name: str, provider: str, request: ModelRequest) -> None:
        self._answer = Answer(name, provider, request)
        self._blocks: dict[object, dict[str, Any]] = {}
        self._counts: dict[str, Any] = {}

    def take(self, event: Event) -> Iterator[ModelDelta]:
        """Take one event; kinds that say nothing new are passed over."""
        place = event.get("index")
        match event.get("type"):
            case "message_start":
                yield from self._count(event["message"].get("usage") or {})
            case "content_block_start":
                yield from self._begin(dict(event["content_block"]), place)
            case "content_block_delta":
                yield from self._go_on(event["delta"], place)
            case "content_block_stop":
                self._end(place)
            case "message_delta":
                yield from self._stop(event["delta"])
                yield from self._count(event.get("usage") or {})
            case "message_stop":
                self._answer.finished = True

    def response(self) -> ModelResponse:
        """Return the whole."""
        return self._answer.response()

    def _begin(self, block: dict[str, Any], place: object) -> Iterator[ModelDelta]:
        self._blocks[place] = block
        self._answer.open.add(place)
        match block.get("type"):
            case "text":
                yield from self._answer.text(word(block, "text"))
            case "tool_use":
                yield from self._call(place, "")

    def _go_on(self, delta: dict[str, Any], place: object) -> Iterator[ModelDelta]:
        block = self._blocks[place]
        match delta.get("type"):
            case "text_delta":
                yield from self._answer.text(word(delta, "text"))
            case "thinking_delta":
                block["thinking"] = word(block, "thinking") + word(delta, "thinking")
                yield from self._answer.reasoning(word(delta, "thinking"))
            case "signature_delta":
                block["signature"] = word(block, "signature") + word(delta, "signature")
            case "input_json_delta" if block.get("type") == "tool_use":
                yield from self._call(place, word(delta, "partial_json"))
            case "input_json_delta":
                block["partial_json"] = word(block, "partial_json") + word(delta, "partial_json")

    def _call(self, place: object, arguments: str) -> Iterator[ModelDelta]:
        block = self._blocks[place]
        draft = self._answer.calls.piece(
            index=place if isinstance(place, int) else None,
            given_id=word(block, "id"),
            name=word(block, "name"),
            arguments=arguments,
        )
        yield from self._answer.call_piece(draft, arguments)

    def _end(self, place: object) -> None:
        block = self._blocks[place]
        self._answer.open.discard(place)
        kind = block.get("type")
        if kind == "tool_use":
            self._end_call(block, place)
        elif kind == "thinking" and not block.get("signature"):
            # Unsigned reasoning is refused when it comes back.
            return
        elif kind != "text":
            typed = block.pop("partial_json", "")
            self._answer.opaque({**block, "input": arguments_object(typed)} if typed else block)

    def _end_call(self, block: dict[str, Any], place: object) -> None:
        draft = self._answer.calls.piece(
            index=place if isinstance(place, int) else None,
            given_id=word(block, "id"),
            name="",
            arguments="",
        )
        draft.closed = True
        if block.get("input") and not draft.pieces:
            draft.pieces.append(json.dumps(block["input"]))

    def _stop(self, delta: dict[str, Any]) -> Iterator[ModelDelta]:
        reason = delta.get("stop_reason")
        if not reason:
            return
        self._answer.finished = True
        self._answer.stop = _STOPS.get(reason)
        if self._answer.stop == "refusal" and self._answer.blank:
            explanation = word(delta.get("stop_details"), "explanation")
            yield from self._answer.text(explanation, "refusal")

    def _count(self, counts: dict[str, Any]) -> Iterator[ModelDelta]:
        """Later counts replace earlier ones field by field; they are cumulative."""
        self._counts |= {field: value for field, value in counts.items() if value is not None}
        if counts:
            yield from self._answer.counted(_usage(self._counts))


def _usage(counts: dict[str, Any]) -> Usage:
    cached = number(counts, "cache_read_input_tokens")
    written = number(counts, "cache_creation_input_tokens")
    return Usage(
        input_tokens=number(counts, "input_tokens") + cached + written,
        output_tokens=number(counts, "output_tokens"),
        cached_input_tokens=cached,
        reasoning_tokens=number(counts.get("output_tokens_details"), "thinking_tokens"),
    )

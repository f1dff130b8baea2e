"""The dialect of chat completions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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
    arguments_text,
    attachment_line,
    call_name,
    is_image,
    marked_result_text,
)
from changeover_worker._models.model import ModelDelta, ModelRequest, ModelResponse
from changeover_worker._models.stream import Event


def create(client: Any) -> Any:
    """The SDK's method that asks."""
    return client.chat.completions.create


def body(request: ModelRequest, provider: str) -> dict[str, Any]:
    """Write a request; this dialect has no blocks that would have to go back to `provider`."""
    messages: list[dict[str, Any]] = []
    if request.instructions:
        messages.append({"role": "system", "content": request.instructions})
    for item in request.items:
        messages.extend(_messages(item))
    fields: dict[str, Any] = {
        "messages": messages,
        "stream_options": {"include_usage": True},
    }
    if request.tools:
        fields["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": dict(tool.parameters),
                },
            }
            for tool in request.tools
        ]
    return fields


def _messages(item: Item) -> Iterator[dict[str, Any]]:
    if isinstance(item, UserMessage):
        yield {"role": "user", "content": _user_content(item)}
    elif isinstance(item, ToolResult):
        yield {
            "role": "tool",
            "tool_call_id": item.call_id,
            "content": marked_result_text(item),
        }
    elif item.text.strip() or item.tool_calls:
        # Blank messages are left out: some servers refuse them.
        yield _assistant(item)


def _user_content(item: UserMessage) -> str | list[dict[str, Any]]:
    lines = [attachment_line(each) for each in item.attachments if not is_image(each)]
    text = "\n".join([item.text, *lines] if item.text.strip() else lines)
    images = [
        {"type": "image_url", "image_url": {"url": each.url}}
        for each in item.attachments
        if is_image(each)
    ]
    if not images:
        return text
    return [*([{"type": "text", "text": text}] if text else []), *images]


def _assistant(item: AssistantMessage) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": item.text or None}
    if item.tool_calls:
        message["tool_calls"] = [_call(call) for call in item.tool_calls]
    return message


def _call(call: ToolCall) -> dict[str, Any]:
    return {
        "id": call.call_id,
        "type": "function",
        "function": {"name": call_name(call.name), "arguments": arguments_text(call.arguments)},
    }


class Assembly:
    """Puts the chunks of one answer together."""

    def __init__(self, name: str, provider: str, request: ModelRequest) -> None:
        self._answer = Answer(name, provider, request)

    def take(self, event: Event) -> Iterator[ModelDelta]:
        """Take one chunk. Usage may come in one without choices."""
        for choice in event.get("choices") or ():
            # Only one answer was asked for.
            if choice.get("index") in (None, 0):
                yield from self._take_choice(choice)
        if event.get("usage"):
            yield from self._answer.counted(_usage(event["usage"]))

    def response(self) -> ModelResponse:
        """Return the whole."""
        return self._answer.response()

    def _take_choice(self, choice: dict[str, Any]) -> Iterator[ModelDelta]:
        delta = choice.get("delta") or {}
        yield from self._answer.reasoning(
            word(delta, "reasoning_content") or word(delta, "reasoning")
        )
        yield from self._answer.text(word(delta, "content"))
        yield from self._answer.text(word(delta, "refusal"), "refusal")
        yield from self._take_calls(delta.get("tool_calls") or [])
        reason = choice.get("finish_reason")
        if reason:
            self._answer.finished = True
            self._answer.stop = {"length": "length", "content_filter": "refusal"}.get(reason)

    def _take_calls(self, pieces: list[dict[str, Any]]) -> Iterator[ModelDelta]:
        calls = self._answer.calls
        first = max(0, len(calls.drafts) - len(pieces))
        for place, piece in enumerate(pieces):
            function = piece.get("function") or {}
            arguments = word(function, "arguments")
            index = piece.get("index")
            draft = calls.piece(
                index=index if isinstance(index, int) else None,
                given_id=word(piece, "id"),
                name=word(function, "name"),
                arguments=arguments,
                position=first + place,
            )
            yield from self._answer.call_piece(draft, arguments)


def _usage(counts: dict[str, Any]) -> Usage:
    return Usage(
        input_tokens=number(counts, "prompt_tokens"),
        output_tokens=number(counts, "completion_tokens"),
        cached_input_tokens=number(counts.get("prompt_tokens_details"), "cached_tokens"),
        reasoning_tokens=number(counts.get("completion_tokens_details"), "reasoning_tokens"),
    )

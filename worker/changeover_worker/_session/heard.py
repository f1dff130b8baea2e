"""What a model said, made fit to be kept: JSON can hold it, and there is a limit to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from changeover_shared._items import AssistantMessage, ToolCall, Usage
from changeover_worker._models.model import (
    ModelDelta,
    ModelError,
    ModelResponse,
    ReasoningDelta,
    TextDelta,
    TextPart,
    ToolCallDelta,
)
from changeover_worker._readable import MAX_DEPTH, readable, readable_value, too_deep

MAX_BYTES: Final = 16 * 1024**2
"""How much text, reasoning and arguments of calls one answer may stream, in UTF-8."""


class Hearing:
    """Hears the deltas of one model step, and its answer."""

    def __init__(self) -> None:
        self._bytes = 0
        self.calls_admitted = False
        """A tool call was heard, whole or in part."""

    def delta(self, delta: ModelDelta) -> None:
        """Note a piece. Raises `ModelError` once the answer is too long."""
        match delta:
            case TextDelta(text=text) | TextPart(text=text) | ReasoningDelta(text=text):
                self._count(text)
            case ToolCallDelta(arguments=arguments):
                self.calls_admitted = True
                self._count(arguments)

    def answer(self, response: object) -> ModelResponse:
        """Note what the model returned. Raises `TypeError` for what is no answer."""
        if not isinstance(response, ModelResponse):
            raise TypeError(f"the model returned a {type(response).__name__}, not a ModelResponse")
        message, usage = response.message, response.usage
        if not isinstance(message, AssistantMessage) or not isinstance(usage, Usage):
            kinds = f"{type(message).__name__} and {type(usage).__name__}"
            raise TypeError(f"the model's response holds {kinds}, not AssistantMessage and Usage")
        self.calls_admitted = self.calls_admitted or bool(message.tool_calls)
        return response

    def _count(self, text: str) -> None:
        text = readable(text)
        self._bytes += len(text) if text.isascii() else len(text.encode())
        if self._bytes > MAX_BYTES:
            size = MAX_BYTES // 1024**2
            raise _unfit(f"the answer is over {size} MiB; it was dropped")


def readable_delta(delta: ModelDelta) -> ModelDelta:
    """Make a piece readable."""
    if isinstance(delta, TextDelta | ReasoningDelta):
        return replace(delta, text=readable(delta.text))
    return delta


def readable_answer(response: ModelResponse) -> ModelResponse:
    """Make an answer readable. Raises `ModelError` for one that nests too deep."""
    message = response.message
    update = {
        "text": readable(message.text),
        "tool_calls": tuple(map(_call, message.tool_calls)),
        "opaque": tuple(_opaque(entry, message.text) for entry in message.opaque),
    }
    stop = None if response.stop is None else readable(str(response.stop))
    return replace(response, message=message.model_copy(update=update), stop=stop)


def _call(call: ToolCall) -> ToolCall:
    update = {field: readable(getattr(call, field)) for field in ("call_id", "name", "arguments")}
    return call.model_copy(update=update)


def _opaque(entry: dict[str, Any], text: str) -> dict[str, Any]:
    """A provider's block; its place in the text moves where pairs before it were joined."""
    if too_deep(entry):
        raise _unfit(f"a block of the answer nests deeper than {MAX_DEPTH} levels; it was dropped")
    mended: dict[str, Any] = readable_value(entry)
    chars = entry.get("chars")
    return {**mended, "chars": len(readable(text[:chars]))} if isinstance(chars, int) else mended


def _unfit(message: str) -> ModelError:
    return ModelError(kind="provider_stream", message=message, retryable=False)

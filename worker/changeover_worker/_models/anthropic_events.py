"""Reads the events of Anthropic's messages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from changeover_shared._items import Usage
from changeover_worker._models.answer import Answer, number, word
from changeover_worker._models.contents import arguments_object
from changeover_worker._models.model import ModelDelta, ModelRequest, ModelResponse
from changeover_worker._models.stream import Event

_STOPS: Final = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}


class Assembly:
    """Puts the events of one answer together."""

    def __init__(self, name: str, provider: str, request: ModelRequest) -> None:
        self._answer = Answer(name, provider, request)
        self._blocks: dict[object, dict[str, Any]] = {}
        self._counts: dict[str, Any] = {}
        self._counted = Usage()
        self._stop_reason = ""
        self.container = ""
        """Where the provider's own tools work, if it said so."""

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

    @property
    def paused(self) -> bool:
        """The answer goes on in another request. With calls it does not: they want results."""
        return self._stop_reason == "pause_turn" and not self._answer.calls.drafts

    def go_on(self) -> None:
        """Begin to take the events of the request in which a paused answer goes on."""
        self._counted += _usage(self._counts)
        self._counts = {}
        self._stop_reason = ""
        self._answer.finished = False

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
        kind = word(block, "type")
        if kind == "tool_use":
            self._end_call(block, place)
        elif kind == "thinking" and not block.get("signature"):
            # Unsigned reasoning is refused when it comes back.
            return
        elif kind and kind != "text":
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
        self.container = word(delta.get("container"), "id") or self.container
        reason = delta.get("stop_reason")
        if not reason:
            return
        self._stop_reason = reason
        self._answer.finished = True
        self._answer.stop = _STOPS.get(reason)
        if self._answer.stop == "refusal" and self._answer.blank:
            explanation = word(delta.get("stop_details"), "explanation")
            yield from self._answer.text(explanation, "refusal")

    def _count(self, counts: dict[str, Any]) -> Iterator[ModelDelta]:
        """Later counts replace earlier ones field by field; they are cumulative."""
        self._counts |= {field: value for field, value in counts.items() if value is not None}
        if counts:
            yield from self._answer.counted(self._counted + _usage(self._counts))


def _usage(counts: dict[str, Any]) -> Usage:
    cached = number(counts, "cache_read_input_tokens")
    written = number(counts, "cache_creation_input_tokens")
    return Usage(
        input_tokens=number(counts, "input_tokens") + cached + written,
        output_tokens=number(counts, "output_tokens"),
        cached_input_tokens=cached,
        reasoning_tokens=number(counts.get("output_tokens_details"), "thinking_tokens"),
    )

"""The dialect of OpenAI's responses."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final

from changeover_shared._items import (
    AssistantMessage,
    Item,
    Phase,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from changeover_worker._models.answer import Answer, number, word
from changeover_worker._models.calls import CallDraft
from changeover_worker._models.contents import (
    Opaque,
    Text,
    arguments_text,
    attachment_line,
    call_name,
    is_image,
    marked_result_text,
    parts,
)
from changeover_worker._models.model import ModelDelta, ModelRequest, ModelResponse
from changeover_worker._models.stream import Broken, Event

_PHASE: Final = "phase"
"""The type of the block that keeps how the provider labelled a message, to label it so again."""

_LONGEST_ID: Final = 64


def create(client: Any) -> Any:
    """The SDK's method that asks."""
    return client.responses.create


def body(request: ModelRequest, provider: str) -> dict[str, Any]:
    """Write a request that stores nothing with the provider."""
    fields: dict[str, Any] = {
        "input": [each for item in request.items for each in _items(item, provider)],
        "store": False,
    }
    if request.instructions:
        fields["instructions"] = request.instructions
    if request.tools:
        fields["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": dict(tool.parameters),
                "strict": False,
            }
            for tool in request.tools
        ]
    return fields


def _items(item: Item, provider: str) -> Iterator[dict[str, Any]]:
    if isinstance(item, UserMessage):
        yield {"type": "message", "role": "user", "content": _user_content(item)}
    elif isinstance(item, ToolResult):
        yield {
            "type": "function_call_output",
            "call_id": _own_id(item.call_id),
            "output": marked_result_text(item),
        }
    else:
        yield from _assistant_items(item, provider)


def _user_content(item: UserMessage) -> list[dict[str, Any]]:
    texts = [item.text] if item.text.strip() else []
    texts += [attachment_line(each) for each in item.attachments if not is_image(each)]
    return [
        *({"type": "input_text", "text": text} for text in texts),
        *(
            {"type": "input_image", "detail": "auto", "image_url": each.url}
            for each in item.attachments
            if is_image(each)
        ),
    ]


def _assistant_items(item: AssistantMessage, provider: str) -> Iterator[dict[str, Any]]:
    label: dict[str, Any] = {}
    for part in parts(item, provider):
        if isinstance(part, Opaque) and part.block["type"] == _PHASE:
            label = {"phase": part.block["phase"]}
        elif isinstance(part, Opaque):
            yield part.block
        elif isinstance(part, Text):
            yield {"type": "message", "role": "assistant", "content": part.text, **label}
        else:
            yield _call(part)


def _call(call: ToolCall) -> dict[str, Any]:
    return {
        "type": "function_call",
        "call_id": _own_id(call.call_id),
        "name": call_name(call.name),
        "arguments": arguments_text(call.arguments),
    }


def _own_id(call_id: str) -> str:
    """Ids of other providers may be longer than is read here."""
    return call_id if len(call_id) <= _LONGEST_ID else sha256(call_id.encode()).hexdigest()


class Assembly:
    """Puts the events of one answer together."""

    def __init__(self, name: str, provider: str, request: ModelRequest) -> None:
        self._answer = Answer(name, provider, request)
        self._ids: dict[object, str] = {}
        self._done: set[object] = set()
        self._spoken: set[object] = set()
        self._phases: dict[object, Phase] = {}

    def take(self, event: Event) -> Iterator[ModelDelta]:
        """Take one event; kinds that say nothing new are passed over."""
        place = _place(event)
        match word(event, "type"):
            case "response.output_item.added":
                self._answer.open.add(place)
                yield from self._begin(event["item"], place)
            case "response.output_text.delta":
                yield from self._say(place, word(event, "delta"), self._phases.get(place))
            case "response.refusal.delta":
                yield from self._say(place, word(event, "delta"), "refusal")
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                yield from self._answer.reasoning(word(event, "delta"))
            case "response.function_call_arguments.delta":
                yield from self._call(place, {"arguments": word(event, "delta")})
            case "response.output_item.done":
                yield from self._end(event["item"], place)
            case "response.completed" | "response.incomplete":
                yield from self._finish(event["response"])
            case "response.failed":
                raise Broken(event["response"].get("error"))
            case "error":
                raise Broken(event)

    def response(self) -> ModelResponse:
        """Return the whole."""
        return self._answer.response()

    def _begin(self, item: dict[str, Any], place: object) -> Iterator[ModelDelta]:
        if item.get("type") == "message":
            self._label(item, place)
        elif item.get("type") == "function_call":
            self._ids[place] = word(item, "call_id")
            yield from self._call(place, item)

    def _label(self, item: dict[str, Any], place: object) -> None:
        phase = item.get("phase")
        if phase in ("commentary", "final_answer") and place not in self._phases:
            self._phases[place] = phase
            self._answer.opaque({"type": _PHASE, "phase": phase})

    def _say(self, place: object, piece: str, phase: Phase | None) -> Iterator[ModelDelta]:
        if place not in self._spoken:
            # A second message of one answer is a paragraph of its own.
            piece = piece if self._answer.blank else f"\n\n{piece}"
            self._spoken.add(place)
        yield from self._answer.text(piece, phase or "final_answer")

    def _call(self, place: object, piece: dict[str, Any]) -> Iterator[ModelDelta]:
        draft = self._draft(place, piece)
        yield from self._answer.call_piece(draft, word(piece, "arguments"))

    def _draft(self, place: object, piece: dict[str, Any]) -> CallDraft:
        return self._answer.calls.piece(
            index=place if isinstance(place, int) else None,
            given_id=word(piece, "call_id") or self._ids.get(place, ""),
            name=word(piece, "name"),
            arguments=word(piece, "arguments"),
            position=len(self._answer.calls.drafts) - 1,
        )

    def _end(self, item: dict[str, Any], place: object) -> Iterator[ModelDelta]:
        """Take an item as the provider sums it up, adding what did not come in pieces."""
        self._answer.open.discard(place)
        self._done |= {place, word(item, "id") or place}
        match item.get("type"):
            case "message":
                self._label(item, place)
                if place not in self._spoken:
                    yield from self._say_content(item, place)
            case "function_call":
                yield from self._end_call(item, place)
            case "reasoning" if item.get("encrypted_content"):
                # Without it the provider would look for its own copy, and it stores none.
                kept = {field: value for field, value in item.items() if value is not None}
                self._answer.opaque(kept)

    def _say_content(self, item: dict[str, Any], place: object) -> Iterator[ModelDelta]:
        for part in item.get("content") or ():
            yield from self._say(place, word(part, "text"), self._phases.get(place))
            yield from self._say(place, word(part, "refusal"), "refusal")

    def _end_call(self, item: dict[str, Any], place: object) -> Iterator[ModelDelta]:
        draft = self._draft(place, {**item, "arguments": ""})
        whole = word(item, "arguments")
        if whole and not draft.pieces:
            yield from self._answer.call_piece(draft, whole)
        if whole:
            draft.pieces = [whole]
        draft.closed = item.get("status") != "incomplete"

    def _finish(self, response: dict[str, Any]) -> Iterator[ModelDelta]:
        self._answer.finished = True
        for place, item in enumerate(response.get("output") or ()):
            if not self._done & {place, word(item, "id")}:
                yield from self._end(item, place)
        reason = word(response.get("incomplete_details"), "reason")
        stops = {"max_output_tokens": "length", "content_filter": "refusal"}
        self._answer.stop = stops.get(reason)
        if response.get("usage"):
            yield from self._answer.counted(_usage(response["usage"]))


def _place(event: Event) -> object:
    """Which item an event is about: its index, else its id."""
    index = event.get("output_index")
    return index if index is not None else word(event.get("item"), "id") or event.get("item_id")


def _usage(counts: dict[str, Any]) -> Usage:
    return Usage(
        input_tokens=number(counts, "input_tokens"),
        output_tokens=number(counts, "output_tokens"),
        cached_input_tokens=number(counts.get("input_tokens_details"), "cached_tokens"),
        reasoning_tokens=number(counts.get("output_tokens_details"), "reasoning_tokens"),
    )

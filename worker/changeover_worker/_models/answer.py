"""Puts a streamed answer together, whatever order its pieces come in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from changeover_shared._items import AssistantMessage, Phase, Usage
from changeover_worker._models.calls import CallDraft, CallDrafts
from changeover_worker._models.contents import is_whole, opaque_entry
from changeover_worker._models.model import (
    ModelDelta,
    ModelError,
    ModelRequest,
    ModelResponse,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
)

MAX_TOKENS: Final = 2**50
"""No answer has so many: a larger count is made up, and sums of some stay countable."""


class Answer:
    """One answer while it arrives. What counts is what arrived, not what the provider says of it.

    Each method that takes a piece returns the delta to hand on, if there is one.
    """

    def __init__(self, name: str, provider: str, request: ModelRequest) -> None:
        self.name = name
        self.calls = CallDrafts(
            call.call_id
            for item in request.items
            if isinstance(item, AssistantMessage)
            for call in item.tool_calls
        )
        self.finished = False
        """The provider said that the answer has ended."""
        self.open: set[object] = set()
        """Blocks that the provider has begun and not ended, in dialects that say so."""
        self.stop: str | None = None
        self.usage = Usage()
        self._provider = provider
        self._text: list[str] = []
        self._chars = 0
        self._refused = False
        self._opaque: list[dict[str, Any]] = []

    @property
    def blank(self) -> bool:
        """No text has arrived."""
        return self._chars == 0

    def text(self, piece: str, phase: Phase = "final_answer") -> list[ModelDelta]:
        """Take visible text."""
        if not piece:
            return []
        self._text.append(piece)
        self._chars += len(piece)
        self._refused = self._refused or phase == "refusal"
        return [TextDelta(piece, phase)]

    def reasoning(self, piece: str) -> list[ModelDelta]:
        """Take reasoning, which is shown and dropped."""
        return [ReasoningDelta(piece)] if piece else []

    def call_piece(self, draft: CallDraft, arguments: str) -> list[ModelDelta]:
        """Show the piece of a call that was just joined."""
        return [ToolCallDelta(draft.call_id, draft.name, arguments)]

    def counted(self, usage: Usage) -> list[ModelDelta]:
        """Take the tokens counted so far, in place of those before."""
        self.usage = usage
        return [UsageDelta(usage)]

    def opaque(self, block: dict[str, Any]) -> None:
        """Keep a block that only its provider understands, at this place."""
        self._opaque.append(
            opaque_entry(self._provider, block, chars=self._chars, calls=len(self.calls.drafts))
        )

    def response(self) -> ModelResponse:
        """Return the whole. Raises `ModelError` if the stream was cut or brought nothing."""
        drafts = self.calls.drafts
        if not self.finished:
            self._check_whole()
        stop = "refusal" if self._refused and self.stop is None else self.stop
        message = AssistantMessage(
            text="".join(self._text),
            phase=self._phase(stop),
            # A stop can only have cut the call that came last.
            tool_calls=tuple(
                draft.call(settled=self.stop is None or draft is not drafts[-1]) for draft in drafts
            ),
            opaque=tuple(self._opaque),
        )
        return ModelResponse(message, self.usage, stop)

    def _check_whole(self) -> None:
        if self.open:
            raise self._cut("the stream ended inside a block")
        if not self.calls.drafts and self.blank:
            raise self._cut("the stream ended before it brought anything")
        for draft in self.calls.drafts:
            if not draft.closed and not is_whole(draft.arguments):
                raise self._cut(f"the stream ended inside a call of {draft.name!r}")

    def _phase(self, stop: str | None) -> Phase:
        if self.calls.drafts:
            return "commentary"
        return "refusal" if stop == "refusal" else "final_answer"

    def _cut(self, reason: str) -> ModelError:
        return ModelError(
            kind="provider_stream",
            message=f"{self.name}: {reason}; the part that came is dropped; it may be asked again",
            retryable=True,
        )


def number(counts: object, field: str) -> int:
    """Read a count of tokens; what a server left out or made up is 0."""
    value = counts.get(field) if isinstance(counts, Mapping) else None
    return value if isinstance(value, int) and 0 < value < MAX_TOKENS else 0


def word(source: object, field: str) -> str:
    """Read a string; what a server left out or made up is empty."""
    value = source.get(field) if isinstance(source, Mapping) else None
    return value if isinstance(value, str) else ""

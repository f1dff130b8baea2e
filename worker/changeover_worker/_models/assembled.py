"""One answer, put together from what a model streamed and what it returned; for any model.

What is returned counts where it says something; what it leaves out is taken from the stream. So a
model may stream everything and return nothing, or the reverse, or both, and each word, call and
token is there once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from changeover_shared._items import MAX_COUNT, AssistantMessage, Phase, ToolCall, Usage
from changeover_worker._models.calls import CallDrafts
from changeover_worker._models.model import (
    ModelDelta,
    ModelResponse,
    TextDelta,
    TextPart,
    ToolCallDelta,
    UsageDelta,
)
from changeover_worker._readable import readable


@dataclass(slots=True)
class _Run:
    """Neighbouring text of one phase."""

    phase: Phase
    pieces: list[str]
    open: bool = True
    """The part that it belongs to has not come."""

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class Assembled:
    """Keeps what one answer streams, for as long as its model step lasts."""

    def __init__(self) -> None:
        self.usage = Usage()
        """The tokens counted last."""
        self.miscounted = False
        """The provider told of a number of tokens that cannot be; it is not counted."""
        self._runs: list[_Run] = []
        self._shown: list[tuple[Phase, str]] = []
        self._calls = CallDrafts(())

    def take(self, delta: ModelDelta) -> ModelDelta:
        """Keep a piece, and return what of it is new to those who follow."""
        match delta:
            case TextPart(text=text, phase=phase):
                delta = TextDelta(self._take_part(text, phase), phase)
                self._shown.append((phase, delta.text))
            case TextDelta(text=text, phase=phase):
                self._add(text, phase)
                self._shown.append((phase, text))
            case ToolCallDelta():
                self._take_call(delta)
            case UsageDelta(usage=usage):
                self.usage = self._counted(usage) or self.usage
        return delta

    def whole(self, response: ModelResponse) -> ModelResponse:
        """The answer that counts. Streamed calls count if nothing else was returned."""
        said, stop = response.message, response.stop
        self.usage = self._counted(response.usage) or self.usage
        update: dict[str, object] = {}
        streamed = "".join(run.text for run in self._runs)
        if not said.text.strip() and streamed.strip():
            update["text"] = streamed
            if not said.tool_calls and any(run.phase == "refusal" for run in self._runs):
                update["phase"], stop = "refusal", stop or "refusal"
        if not said.text.strip() and not said.tool_calls and self._calls.drafts:
            update |= {"tool_calls": self._streamed_calls(stop), "phase": "commentary"}
        return replace(
            response,
            message=said.model_copy(update=update) if update else said,
            usage=self.usage,
            stop=stop,
        )

    def unsaid(self, message: AssistantMessage) -> TextDelta:
        """What of the answer's text has not been shown; nothing if it contradicts what has."""
        everything = readable("".join(text for _, text in self._shown))
        of_phase = readable("".join(t for phase, t in self._shown if phase == message.phase))
        shown = everything if message.text.startswith(everything) else of_phase
        rest = message.text[len(shown) :] if message.text.startswith(shown) else ""
        return TextDelta(rest, message.phase)

    def _add(self, text: str, phase: Phase) -> None:
        last = self._runs[-1] if self._runs else None
        if last is None or last.phase != phase or not last.open:
            self._runs.append(_Run(phase, [text]))
        else:
            last.pieces.append(text)

    def _take_part(self, part: str, phase: Phase) -> str:
        """Settle the streamed text that `part` is the whole of; what it adds."""
        runs = [run for run in self._runs if run.open and run.phase == phase]
        streamed = "".join(run.text for run in runs)
        if streamed.startswith(part):
            self._close(runs, len(part))
            return ""
        if not part.startswith(streamed):
            self._replace(runs, part)
            return ""
        rest = part[len(streamed) :]
        self._add(rest, phase)
        for run in (*runs, self._runs[-1]):
            run.open = False
        return rest

    def _close(self, runs: list[_Run], length: int) -> None:
        """Settle the first `length` characters of `runs`: what follows is of the next part."""
        for run in runs:
            text = run.text
            if len(text) > length:
                at = self._runs.index(run)
                self._runs[at : at + 1] = [
                    _Run(run.phase, [text[:length]], open=False),
                    _Run(run.phase, [text[length:]]),
                ]
                return
            run.open = False
            length -= len(text)

    @staticmethod
    def _replace(runs: list[_Run], part: str) -> None:
        """The part counts, whatever was streamed of it."""
        for run in runs:
            run.pieces, run.open = [], False
        runs[0].pieces = [part]

    def _take_call(self, delta: ToolCallDelta) -> None:
        drafts = self._calls.drafts
        last = drafts[-1] if drafts else None
        another = last is None or (delta.name and last.name and delta.name != last.name)
        self._calls.piece(
            index=None,
            given_id=delta.call_id,
            name=delta.name,
            arguments=delta.arguments,
            position=len(drafts) if another else len(drafts) - 1,
        )

    def _streamed_calls(self, stop: str | None) -> tuple[ToolCall, ...]:
        drafts = self._calls.drafts
        # A stop can only have cut the call that came last.
        return tuple(d.call(settled=stop is None or d is not drafts[-1]) for d in drafts)

    def _counted(self, usage: object) -> Usage | None:
        """A count of tokens that can be; None for one that is missing or made up."""
        if usage == Usage():
            return None
        counted = counted_tokens(usage)
        self.miscounted = self.miscounted or counted is None
        return counted


def counted_tokens(usage: object) -> Usage | None:
    """What a model says of its tokens, if that can be."""
    numbers = [getattr(usage, name, None) for name in Usage.model_fields]
    if isinstance(usage, Usage) and all(map(_is_count, numbers)):
        return usage
    return None


def _is_count(number: object) -> bool:
    return type(number) is int and 0 <= number <= MAX_COUNT

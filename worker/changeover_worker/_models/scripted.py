"""A model that answers what it was told to, for tests, demonstrations and benchmarks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Self

from changeover_shared._items import AssistantMessage, Phase, ToolCall, Usage
from changeover_shared._units import Duration, duration
from changeover_worker._models.model import (
    Emit,
    ModelError,
    ModelRequest,
    ModelResponse,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
)

_KEPT: Final = 256


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """One tool call of a script; made by `call`."""

    tool: str
    arguments: str
    call_id: str | None = None


@dataclass(frozen=True, slots=True)
class ScriptedAnswer:
    """One answer of a script; made by `say`, `call` and `calls`."""

    text: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    stop: str | None = None
    usage: Usage = field(default_factory=Usage)

    @property
    def phase(self) -> Phase:
        """What the text is, as an adapter would have put it."""
        if self.calls:
            return "commentary"
        return "refusal" if self.stop == "refusal" else "final_answer"


@dataclass(frozen=True, slots=True)
class ScriptedFailure:
    """One failure of a script; made by `fail`."""

    kind: str
    message: str
    retryable: bool = False
    retry_after: timedelta | None = None
    after: str = ""

    def error(self) -> ModelError:
        """A new exception each time: one instance must not be raised by two tasks."""
        return ModelError(
            kind=self.kind,
            message=self.message,
            retryable=self.retryable,
            retry_after=self.retry_after,
        )


Entry = ScriptedAnswer | ScriptedFailure
"""What a script holds: one answer or failure for one request."""


def say(text: str, *, stop: str | None = None, usage: Usage | None = None) -> ScriptedAnswer:
    """Answer with `text`; `stop` is `length` or `refusal` for an answer that ends so."""
    return ScriptedAnswer(text=text, stop=stop, usage=usage or Usage())


def call(tool: str, /, *, call_id: str | None = None, **args: Any) -> ScriptedAnswer:
    """Ask for one tool call. Without `call_id`, `call_1`, `call_2` ... within the session."""
    return ScriptedAnswer(calls=(ScriptedCall(tool, json.dumps(args), call_id),))


def calls(*asked: ScriptedAnswer, text: str = "") -> ScriptedAnswer:
    """Ask for several tool calls in one step, with `text` said beside them."""
    return ScriptedAnswer(text=text, calls=tuple(each for one in asked for each in one.calls))


def fail(
    kind: str = "provider_server",
    message: str = "failed as scripted",
    *,
    retryable: bool = False,
    retry_after: Duration | None = None,
    after: str = "",
) -> ScriptedFailure:
    """Fail with a `ModelError`, after streaming the text `after`."""
    wait = None if retry_after is None else duration(retry_after, field="retry_after")
    return ScriptedFailure(kind, message, retryable, wait, after)


class ScriptedModel:
    """Answers from a script; what is not in the script is an error, kind `unscripted`.

    `ScriptedModel(call("refund", order="7"), say("Done."))` answers its requests in order, within
    one process. `ScriptedModel.by(fn)` and `ScriptedModel.always(entry)` keep no state and answer
    alike in every worker process. Public as `changeover_worker.testing.ScriptedModel`.
    """

    def __init__(
        self,
        *script: Entry,
        name: str = "scripted",
        delay: float = 0.0,
        chunk: int | None = None,
        pause: float = 0.0,
    ) -> None:
        self.name = name
        self.requests: list[ModelRequest] = []
        """What was asked, oldest first; the last 256."""
        self._rest: Iterator[Entry] = iter(script)
        self._choose: Callable[[ModelRequest], Entry] | None = None
        self._delay = delay
        self._chunk = chunk
        self._pause = pause

    @classmethod
    def by(
        cls,
        choose: Callable[[ModelRequest], Entry],
        *,
        name: str = "scripted",
        delay: float = 0.0,
        chunk: int | None = None,
        pause: float = 0.0,
    ) -> Self:
        """Answer each request with what `choose` makes of it."""
        model = cls(name=name, delay=delay, chunk=chunk, pause=pause)
        model._choose = choose
        return model

    @classmethod
    def always(
        cls,
        entry: Entry,
        *,
        name: str = "scripted",
        delay: float = 0.0,
        chunk: int | None = None,
        pause: float = 0.0,
    ) -> Self:
        """Answer every request with `entry`."""
        return cls.by(lambda _: entry, name=name, delay=delay, chunk=chunk, pause=pause)

    def __repr__(self) -> str:
        return f"ScriptedModel(name={self.name!r})"

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Answer with the next entry, after `delay` seconds and in deltas of `chunk` characters."""
        self.requests.append(request)
        del self.requests[:-_KEPT]
        entry = self._entry_for(request)
        if self._delay:
            await asyncio.sleep(self._delay)
        if isinstance(entry, ScriptedFailure):
            await self._stream(entry.after, "final_answer", emit)
            raise entry.error()
        return await self._answer(entry, request, emit)

    def _entry_for(self, request: ModelRequest) -> Entry:
        entry = self._choose(request) if self._choose else next(self._rest, None)
        if entry is None:
            raise ModelError(
                kind="unscripted",
                message=f"{self.name}: the script has no answer left; nothing was said; "
                "add an entry, or find out why the model was asked again",
                retryable=False,
            )
        return entry

    async def _answer(
        self, entry: ScriptedAnswer, request: ModelRequest, emit: Emit
    ) -> ModelResponse:
        await self._stream(entry.text, entry.phase, emit)
        tool_calls = _numbered(entry.calls, request)
        for made in tool_calls:
            await emit(ToolCallDelta(made.call_id, made.name, made.arguments))
        if entry.usage.total_tokens:
            await emit(UsageDelta(entry.usage))
        message = AssistantMessage(text=entry.text, phase=entry.phase, tool_calls=tool_calls)
        return ModelResponse(message, entry.usage, entry.stop)

    async def _stream(self, text: str, phase: Phase, emit: Emit) -> None:
        width = self._chunk or len(text) or 1
        for start in range(0, len(text), width):
            if start and self._pause:
                await asyncio.sleep(self._pause)
            await emit(TextDelta(text[start : start + width], phase))


def _numbered(asked: tuple[ScriptedCall, ...], request: ModelRequest) -> tuple[ToolCall, ...]:
    """Name the calls after how many the conversation has, so that any process names them alike."""
    if not asked:
        return ()
    before = sum(
        len(item.tool_calls) for item in request.items if isinstance(item, AssistantMessage)
    )
    return tuple(
        ToolCall(call_id=one.call_id or f"call_{number}", name=one.tool, arguments=one.arguments)
        for number, one in enumerate(asked, start=before + 1)
    )

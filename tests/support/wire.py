"""Streams byte for byte as a provider sends them, and what has to come of each.

The tables in `tests/worker/test_wire_*.py` hold one or more streams for each of `FEATURES`, or say
in their docstring why their dialect cannot express it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from textwrap import dedent
from typing import Any, Final, Literal

import pytest

from changeover_shared._items import Phase, Usage
from changeover_worker._models.model import (
    ModelDelta,
    ModelError,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
)
from tests.support.asking import asked_of, question
from tests.support.model_server import Reply

Test = Callable[["Wire", str], Awaitable[None]]

FEATURES: Final = (
    "split calls",
    "several calls",
    "interleaved calls",
    "used index",
    "missing index",
    "joined by id",
    "joined by position",
    "calls whatever the finish says",
    "empty final",
    "late usage",
    "comment lines",
    "reasoning",
    "opaque reasoning",
    "refusal",
    "length in text",
    "length in a call",
    "error object",
    "cut before the first byte",
    "cut in text",
    "cut in a call",
    "no finish, nothing open",
    "no finish, a call open",
)


@dataclass(frozen=True)
class Wire:
    """One stream, and what has to come of it: an answer, or with `fails` an error."""

    feature: str
    stream: str
    text: str = ""
    phase: Phase = "final_answer"
    calls: Sequence[tuple[str, str]] = ()
    """Id and arguments of each call of `lookup`; an id of '' is whatever we made up."""
    stop: str | None = None
    reasoning: str = ""
    usage: Usage | None = None
    opaque: Sequence[dict[str, Any]] = ()
    """The blocks that are kept for the provider."""
    fails: tuple[str, bool] | None = None
    """Kind, and whether it may be asked again; `text` and `reasoning` were shown before."""
    then: Literal["end", "cut"] = "end"
    head: bool = True
    note: str = ""

    @property
    def label(self) -> str:
        """Its name in a test's id."""
        return f"{self.feature}: {self.note}" if self.note else self.feature

    @property
    def body(self) -> bytes:
        """What is sent. A stream that is cut ends as it stands, in the middle of an event."""
        text = dedent(self.stream).strip("\n")
        return (text if self.then == "cut" else f"{text}\n\n").encode()


@dataclass
class _Heard:
    deltas: list[ModelDelta] = field(default_factory=list)

    async def emit(self, delta: ModelDelta) -> None:
        self.deltas.append(delta)

    def shown(self, kind: type[TextDelta] | type[ReasoningDelta]) -> str:
        return "".join(each.text for each in self.deltas if isinstance(each, kind))

    def arguments(self, call_id: str) -> str:
        pieces = (each for each in self.deltas if isinstance(each, ToolCallDelta))
        return "".join(each.arguments for each in pieces if each.call_id == call_id)

    @property
    def usages(self) -> list[Usage]:
        return [each.usage for each in self.deltas if isinstance(each, UsageDelta)]


def _whole(body: bytes) -> tuple[bytes, ...]:
    return (body,) if body else ()


def _sevens(body: bytes) -> tuple[bytes, ...]:
    return tuple(body[start : start + 7] for start in range(0, len(body), 7))


def _carriage_returns(body: bytes) -> tuple[bytes, ...]:
    return _whole(body.replace(b"\n", b"\r\n"))


CUTTINGS: Final[dict[str, Callable[[bytes], tuple[bytes, ...]]]] = {
    "in one piece": _whole,
    "seven bytes a piece": _sevens,
    "with CRLF": _carriage_returns,
}
"""However the network cuts a stream and the server ends its lines, the same comes of it."""


async def check(api: str, wire: Wire, cutting: str) -> None:
    """Serve the stream to an adapter, and compare."""
    heard = _Heard()
    reply = Reply(CUTTINGS[cutting](wire.body), then=wire.then, head=wire.head)
    async with asked_of(api, reply) as (model, _):
        if wire.fails is None:
            response = await model.respond(question(), heard.emit)
        else:
            with pytest.raises(ModelError) as caught:
                await model.respond(question(), heard.emit)
    assert heard.shown(TextDelta) == wire.text
    assert heard.shown(ReasoningDelta) == wire.reasoning
    if wire.fails is not None:
        assert (caught.value.kind, caught.value.retryable) == wire.fails
        return
    message = response.message
    assert (message.text, message.phase, response.stop) == (wire.text, wire.phase, wire.stop)
    assert {call.name for call in message.tool_calls} <= {"lookup"}
    made = [call.call_id for call in message.tool_calls]
    assert len(set(made)) == len(made)
    assert all(made)
    known = [call_id or had for (call_id, _), had in zip(wire.calls, made, strict=True)]
    assert made == known
    assert [call.arguments for call in message.tool_calls] == [text for _, text in wire.calls]
    for call in message.tool_calls:
        assert heard.arguments(call.call_id) in (call.arguments, "")
    assert [entry["block"] for entry in message.opaque] == list(wire.opaque)
    if wire.usage is not None:
        assert response.usage == heard.usages[-1] == wire.usage


def inexpressible(docstring: str | None) -> set[str]:
    """The features of which a test file's docstring says why its dialect has none."""
    return set(re.findall(r"^- ([^:\n]+): ", docstring or "", re.M))


def check_complete(table: Sequence[Wire], docstring: str | None) -> None:
    """Every feature is in the table, or its absence is explained, and not both."""
    shown, absent = {wire.feature for wire in table}, inexpressible(docstring)
    assert shown | absent == set(FEATURES)
    assert not shown & absent


def labelled(table: Sequence[Wire]) -> Callable[[Test], Test]:
    """The decorator that runs a test for each stream of a table in each cutting."""

    def decorate(test: Test) -> Test:
        by_wire = pytest.mark.parametrize("wire", table, ids=[wire.label for wire in table])
        return pytest.mark.parametrize("cutting", list(CUTTINGS))(by_wire(test))

    return decorate

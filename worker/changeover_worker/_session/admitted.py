"""What a recorder admits: deltas on their way to one event, whole events, and barriers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from pydantic_core import to_json

from changeover_shared._errors import Invalid
from changeover_shared._events import Delta, Event
from changeover_shared._items import Phase


@dataclass(slots=True, eq=False)
class Stream:
    """The deltas of one model step."""

    stamp: dict[str, Any]
    """The step's ids, as its events carry them."""
    seqs: list[int] = field(default_factory=list)
    """Where its deltas lie in the journal."""
    closed: bool = False
    """Whether the step has ended."""


@dataclass(slots=True, eq=False)
class Text:
    """Neighbouring deltas of one stream and phase: one event."""

    stream: Stream
    phase: Phase
    texts: list[str]
    raw: int
    """Bytes of UTF-8."""
    cost: int
    """Bytes of its deltas, each serialised as an event of its own."""
    done: asyncio.Future[None] | None = None
    """Who waits until it is durable."""

    @property
    def count(self) -> int:
        """How many deltas it is made of."""
        return len(self.texts)

    def event(self) -> Event:
        """As the journal has it."""
        return Delta(phase=self.phase, text="".join(self.texts), **self.stream.stamp)


@dataclass(slots=True, eq=False)
class Whole:
    """An event that is written as it is."""

    recorded: Event
    cost: int
    """Bytes, serialised."""
    done: asyncio.Future[None] | None = None
    """Who waits until it is durable."""
    count: int = 1

    def event(self) -> Event:
        """As the journal has it."""
        return self.recorded


@dataclass(slots=True, eq=False)
class Barrier:
    """No event: whoever set it waits for the fate of all that was admitted before."""

    done: asyncio.Future[None]
    cost: int = 0
    count: int = 0


Admitted = Text | Whole | Barrier


def cost_of(event: Event) -> int:
    """How many bytes an event is, serialised. Raises `Invalid` for one that no JSON can hold."""
    try:
        return len(event.body().encode())
    except ValueError as error:
        raise _unwritable(event.type, error) from error


def cost_of_text(text: str, phase: Phase) -> int:
    """The same of a delta, without making one."""
    try:
        return _frame_bytes(phase) + len(to_json(text))
    except ValueError as error:
        raise _unwritable("delta", error) from error


@cache
def _frame_bytes(phase: Phase) -> int:
    return len(Delta(phase=phase, text="").body()) - len('""')


def _unwritable(kind: str, error: ValueError) -> Invalid:
    return Invalid(field=kind, reason=f"is no JSON: {error}", unchanged="nothing was recorded")

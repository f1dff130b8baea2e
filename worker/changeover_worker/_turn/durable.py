"""The durable calls of a handler, as values: what it asked for, not yet carried out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

from changeover_shared._items import Item, Phase, StepKind
from changeover_shared._words import Effect


@dataclass(frozen=True, slots=True)
class StepCall:
    """Run a function once and keep its result."""

    kind: ClassVar[StepKind] = "step"
    name: str
    function: Callable[[], Awaitable[Any]]
    effect: Effect
    retries: int
    timeout: timedelta


@dataclass(frozen=True, slots=True)
class ModelCall:
    """Ask a model."""

    kind: ClassVar[StepKind] = "model"
    name: ClassVar[str] = "model"
    items: tuple[Item, ...]
    model: str | None
    instructions: str
    phase: Phase


@dataclass(frozen=True, slots=True)
class SayCall:
    """Say something."""

    kind: ClassVar[StepKind] = "say"
    name: ClassVar[str] = "say"
    text: str
    phase: Phase


@dataclass(frozen=True, slots=True)
class SleepCall:
    """Let time pass."""

    kind: ClassVar[StepKind] = "sleep"
    name: ClassVar[str] = "sleep"
    span_ms: int


@dataclass(frozen=True, slots=True)
class SteeringCall:
    """Take in what steers the turn."""

    kind: ClassVar[StepKind] = "steering"
    name: ClassVar[str] = "steering"


DurableCall = StepCall | ModelCall | SayCall | SleepCall | SteeringCall


def called(kind: StepKind, name: str) -> str:
    """A durable call as people read it: `step 'charge'`, `model`, `say`, `sleep`,
    `steering`."""
    return f"step {name!r}" if kind == "step" else kind

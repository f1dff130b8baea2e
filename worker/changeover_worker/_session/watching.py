"""Who is told, while it happens, that an application's code is asked and run: metrics, traces.

A watcher gets what is under way as an object that says at the end how it ended. It must not raise
and must not wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from changeover_shared._items import Usage


@dataclass(slots=True)
class Asked:
    """A model that is being asked."""

    model: str
    agent: str
    session_id: str
    turn_id: str
    step: int
    """Its index in the turn."""
    ending: Literal["completed", "failed", "limited", "stopped"] = "stopped"
    """`stopped`: the session had to go, or the turn was interrupted. `limited`: it was not asked,
    for it is at its limit."""
    error: str = ""
    """With `failed`: the kind of failure."""
    usage: Usage = field(default_factory=Usage)
    """What it has cost, whether or not its answer counts."""


@dataclass(slots=True)
class Called:
    """A tool that is being run."""

    tool: str
    """Its name; `unknown_tool` for what is none of the agent's, which only its model has named."""
    session_id: str
    turn_id: str
    call_id: str
    ending: Literal["ok", "error", "unknown", "stopped"] = "stopped"
    """`error`: its result says so. `unknown`: it may have run. `stopped`: it has no result."""


UNKNOWN_TOOL: Final = "unknown_tool"


class Watcher(Protocol):
    """Is told."""

    def asking(self, asked: Asked) -> AbstractContextManager[None]:
        """For as long as a model is asked."""
        ...

    def calling(self, called: Called) -> AbstractContextManager[None]:
        """For as long as a tool runs."""
        ...

    def first_text(self, agent: str, seconds: float) -> None:
        """A turn has begun to answer, so long after it began."""
        ...


class Nobody:
    """Is told nothing."""

    def asking(self, asked: Asked) -> AbstractContextManager[None]:
        """Nothing."""
        return nullcontext()

    def calling(self, called: Called) -> AbstractContextManager[None]:
        """Nothing."""
        return nullcontext()

    def first_text(self, agent: str, seconds: float) -> None:
        """Nothing."""


NOBODY: Final = Nobody()


class Watchers:
    """Tells several."""

    def __init__(self, watchers: Sequence[Watcher]) -> None:
        self._watchers = tuple(watchers)

    @contextmanager
    def asking(self, asked: Asked) -> Iterator[None]:
        """Tell each of them."""
        with ExitStack() as stack:
            for one in self._watchers:
                stack.enter_context(one.asking(asked))
            yield

    @contextmanager
    def calling(self, called: Called) -> Iterator[None]:
        """Tell each of them."""
        with ExitStack() as stack:
            for one in self._watchers:
                stack.enter_context(one.calling(called))
            yield

    def first_text(self, agent: str, seconds: float) -> None:
        """Tell each of them."""
        for one in self._watchers:
            one.first_text(agent, seconds)

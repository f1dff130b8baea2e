"""Who is told, while it happens, that an application's code is asked and run: metrics, traces.

A watcher gets what is under way as an object that says at the end how it ended. It must not raise
and must not wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from changeover_shared._checkpoint import Execution
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


class SessionWatch(Protocol):
    """Is told of one held session's turns."""

    def heard(self, submission_id: str, sent_by: str) -> None:
        """A turn is about to take a submission, which this span has sent; '' if none is known."""
        ...

    def sees(self, execution: Execution | None, ending: str = "") -> str:
        """The turn that is open from here on, and how the one before has ended; what the
        checkpoint should say of its span."""
        ...

    def end(self, how: str) -> None:
        """The session is held no more."""
        ...


class Unwatched:
    """Leaves checkpoints as they are."""

    def heard(self, submission_id: str, sent_by: str) -> None:
        """Nothing."""

    def sees(self, execution: Execution | None, ending: str = "") -> str:
        """What is there."""
        return "" if execution is None else execution.trace

    def end(self, how: str) -> None:
        """Nothing."""


UNWATCHED: Final = Unwatched()

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

    def session(self, session_id: str, agent: str, fence: int) -> SessionWatch:
        """Whom to tell of the turns of a session that was granted."""
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

    def session(self, session_id: str, agent: str, fence: int) -> SessionWatch:
        """Nobody either."""
        return UNWATCHED


NOBODY: Final = Nobody()


class Watchers:
    """Tells one who counts, and one who traces."""

    def __init__(self, counts: Watcher, traces: Watcher) -> None:
        self._counts = counts
        self._traces = traces

    @contextmanager
    def asking(self, asked: Asked) -> Iterator[None]:
        """Tell both."""
        with self._counts.asking(asked), self._traces.asking(asked):
            yield

    @contextmanager
    def calling(self, called: Called) -> Iterator[None]:
        """Tell both."""
        with self._counts.calling(called), self._traces.calling(called):
            yield

    def first_text(self, agent: str, seconds: float) -> None:
        """Tell both."""
        self._counts.first_text(agent, seconds)
        self._traces.first_text(agent, seconds)

    def session(self, session_id: str, agent: str, fence: int) -> SessionWatch:
        """Turns are traced alone."""
        return self._traces.session(session_id, agent, fence)

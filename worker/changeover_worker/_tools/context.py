"""What a running tool knows of its call, and how it learns that it should stop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic

from typing_extensions import TypeVar

R = TypeVar("R", default=Any)


class ToolStopped(BaseException):
    """The call's result is not wanted any more. Let it through.

    Like a cancellation it is no `Exception`, so that `except Exception` does not hold it up.
    """


class StopSignal:
    """Says once, from any thread, why running tools should stop."""

    def __init__(self, parent: StopSignal | None = None) -> None:
        self._parent = parent
        self._reason: str | None = None

    def set(self, reason: str) -> None:
        """Ask to stop; the first reason stays."""
        if self._reason is None:
            self._reason = reason

    @property
    def reason(self) -> str | None:
        """Why to stop: this signal's reason or that of the one it follows; None to go on."""
        if self._reason is None and self._parent is not None:
            return self._parent.reason
        return self._reason


@dataclass(frozen=True, kw_only=True)
class ToolContext(Generic[R]):
    """One tool call, as its tool sees it; the same for `async def` and for `def` tools."""

    session_id: str
    tenant: str = ""
    turn_id: str
    step: int = 0
    """The index of the model step that asked for the call."""
    call_id: str
    fence: int
    """The number of the grant under which the tool runs; a later worker's is higher."""
    epoch: int = 1
    """Counts failovers that may have forgotten writes: order grants by `(epoch, fence)`."""
    attempt: int = 1
    """1 for the first time that this call is run; it rises each time that it is run again."""
    resources: R
    """What the app's lifespan yielded."""
    context: Mapping[str, str] = field(default_factory=dict)
    """The session's context, fixed when it was created."""
    stop: StopSignal = field(default_factory=StopSignal, repr=False, compare=False)

    @property
    def idempotency_key(self) -> str:
        """Names this call for systems that drop repeats: the same for each attempt.

        No other call of the session has it, even where a provider repeats its call ids.
        """
        return f"{self.session_id}/{self.turn_id}/{self.step}/{self.call_id}"

    def check(self) -> None:
        """Return if the result is still wanted.

        Raises `ToolStopped` once the turn was interrupted, the lease was lost or the tool's time
        is over. May be called from any thread; a `def` tool stops early in no other way.
        """
        reason = self.stop.reason
        if reason is not None:
            raise ToolStopped(reason)

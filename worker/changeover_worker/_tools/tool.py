"""`@tool`: a Python function that a model may call."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Generic, Literal, get_args, overload

from typing_extensions import ParamSpec, TypeVar

from changeover_shared._errors import Invalid
from changeover_shared._units import Duration, duration
from changeover_shared._words import Effect
from changeover_worker._models.model import ToolSpec
from changeover_worker._tools.context import ToolContext
from changeover_worker._tools.schema import Signature, read_signature

P = ParamSpec("P", default=...)
T = TypeVar("T", default=Any)

EffectWord = Literal["pure", "idempotent", "once"]
Isolation = Literal["auto", "inline", "thread"]

_TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass(frozen=True, eq=False)
class Tool(Generic[P, T]):
    """A function that a model may call; calling it in Python calls the function."""

    name: str
    effect: Effect
    timeout: timedelta
    threaded: bool
    """It runs in a thread of its own instead of on the event loop."""
    terminal: bool
    """Its result, unless it is an error, ends the turn."""
    function: Callable[P, T] = field(repr=False)
    signature: Signature = field(repr=False)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.function(*args, **kwargs)

    @property
    def description(self) -> str:
        """What the docstring says, without its parameters."""
        return self.signature.description

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The JSON schema of the arguments, an object."""
        return self.signature.parameters

    @property
    def takes_context(self) -> bool:
        """Whether its first parameter is the `ToolContext`."""
        return self.signature.takes_context

    @property
    def spec(self) -> ToolSpec:
        """The tool as a model sees it."""
        return ToolSpec(name=self.name, description=self.description, parameters=self.parameters)

    def bind(self, arguments: str, context: ToolContext[Any]) -> Callable[[], Any]:
        """Check a call's JSON text and return the call, not yet made.

        Raises `ToolError` with a text that tells the model what to correct.
        """
        values = self.signature.read(arguments)
        function: Callable[..., Any] = self.function
        if self.takes_context:
            return lambda: function(context, **values)
        return lambda: function(**values)


@overload
def tool(function: Callable[P, T], /) -> Tool[P, T]: ...


@overload
def tool(
    *,
    name: str | None = None,
    effect: EffectWord = "once",
    isolation: Isolation = "auto",
    timeout: Duration = "60s",
    terminal: bool = False,
) -> Callable[[Callable[P, T]], Tool[P, T]]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    effect: EffectWord = "once",
    isolation: Isolation = "auto",
    timeout: Duration = "60s",
    terminal: bool = False,
) -> Any:
    """Make a function a tool: `async def` runs on the worker's loop, `def` in a thread.

    Its name, docstring and annotations make what the model is told; a first parameter annotated
    `ToolContext` is the call's context. `effect` says what may happen if a worker dies while it
    runs: `once` is never run again and the model is told that the outcome is unknown, `pure` and
    `idempotent` are run again, with the same idempotency key. A call that does not end within
    `timeout` ends as an error result; a thread cannot be stopped and goes on for nobody, and
    `isolation="inline"` runs a quick `def` on the loop, where no time-out can reach it.

    The turn ends with the result of a `terminal` tool as its `output`, and as its text if that is
    text; the model is not asked again. The other calls of the step are run all the same. Of several
    calls that end the turn, by a terminal result or by `StopTurn`, the first in call order does;
    a terminal tool's error ends nothing.

    Raises `Invalid` when a model could not call the function.
    """
    names = sys._getframe(1).f_locals  # annotations may use what is defined beside the function

    def decorate(function: Callable[..., Any]) -> Tool[..., Any]:
        return _make(function, name, effect, isolation, timeout, terminal, names)

    return decorate if function is None else decorate(function)


def _make(
    function: Callable[..., Any],
    name: str | None,
    effect: EffectWord,
    isolation: Isolation,
    timeout: Duration,
    terminal: bool,
    names: Mapping[str, Any],
) -> Tool[..., Any]:
    if not callable(function):
        raise _invalid("tool", f"{function!r:.80} is no function")
    name = _checked_name(getattr(function, "__name__", "") if name is None else name)
    field = f"tool {name!r}"
    if effect not in get_args(EffectWord):
        raise _invalid(field, f"effect {effect!r} is none of {', '.join(get_args(EffectWord))}")
    limit = duration(timeout, field=f"{field}: timeout")
    if not limit:
        raise _invalid(field, "a timeout of 0 would let no call end")
    return Tool(
        name=name,
        effect=Effect(effect),
        timeout=limit,
        threaded=_threaded(function, isolation, field),
        terminal=bool(terminal),
        function=function,
        signature=read_signature(function, tool=name, names=names),
    )


def _checked_name(name: str) -> str:
    if not isinstance(name, str) or not _TOOL_NAME.fullmatch(name):
        raise _invalid(
            "tool", f"name {name!r:.80} is not 1 to 64 characters of a-z A-Z 0-9 _ -; give name="
        )
    return name


def _threaded(function: Callable[..., Any], isolation: Isolation, field: str) -> bool:
    """Where the function runs; a decorated `async def` counts as what it wraps."""
    if isolation not in get_args(Isolation):
        known = ", ".join(get_args(Isolation))
        raise _invalid(field, f"isolation {isolation!r} is none of {known}")
    inner = inspect.unwrap(function)
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise _invalid(field, "yields; a tool returns its result as a whole")
    if not inspect.iscoroutinefunction(inner):
        return isolation != "inline"
    if isolation == "thread":
        raise _invalid(field, "is async def and runs inline; make it def to run it in a thread")
    return False


def _invalid(field: str, reason: str) -> Invalid:
    return Invalid(field=field, reason=reason, unchanged="nothing was started")

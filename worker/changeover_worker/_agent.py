"""`Agent`: how a session's turns run, by configuration."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any, Final, Generic, Literal, get_args

from typing_extensions import TypeVar

from changeover_shared import _identifiers
from changeover_shared._budget import Budget, checked_budget
from changeover_shared._errors import Invalid
from changeover_shared._items import Json
from changeover_shared._policies import AnyPolicy, wish_of
from changeover_worker._compaction import Compaction
from changeover_worker._models.model import ToolSpec
from changeover_worker._tools.tool import Tool
from changeover_worker._turn.offload import READ_RESULT
from changeover_worker._turn.recovery import OnTakeover

R = TypeVar("R", default=Any)

OnAbortInput = Literal["next_turn", "fold"]
_NOT_MADE: Final = "nothing was started"


@dataclass(frozen=True, kw_only=True)
class TurnContext(Generic[R]):
    """A turn, as its agent's instructions see it."""

    session_id: str
    tenant: str = ""
    turn_id: str
    context: Mapping[str, str] = field(default_factory=dict)
    """The session's context, fixed when it was created."""
    metadata: Mapping[str, Json] = field(default_factory=dict)
    """What the session has noted about itself."""
    resources: R
    """What the app's lifespan yielded."""


Instructions = str | Callable[[TurnContext[Any]], str | Awaitable[str]]


@dataclass(frozen=True, eq=False)
class Agent:
    """A model, what it is told, and the tools that it may call. Raises `Invalid`."""

    name: str
    _: KW_ONLY
    model: str
    """A name in the app's `models`, never a provider's."""
    instructions: Instructions = ""
    """What the model is told before the conversation; a function is asked at each step."""
    tools: Sequence[Tool[..., Any]] = ()
    budget: Budget | None = None
    """What a turn may use; a submission may allow less."""
    policy: AnyPolicy = "enqueue"
    """What becomes of a message that names no policy of its own while a turn runs."""
    compaction: Compaction | None = field(default_factory=Compaction)
    """When the older part of the context becomes a summary; None leaves it to ops."""
    on_takeover: OnTakeover = "resume"
    """What becomes of a turn whose worker died: go on from its last step, or abort it."""
    on_abort_input: OnAbortInput = "next_turn"
    """What becomes of messages that wait when a takeover aborts a turn: they are the next turn,
    or they end with the aborted one, in the same commit, and the model reads them with the next
    message."""

    def __post_init__(self) -> None:
        _identifiers.name(self.name, field="agent")
        where = f"agent {self.name!r}"
        if not isinstance(self.model, str) or not self.model:
            raise _invalid(where, "model names one of the app's models")
        if not isinstance(self.instructions, str) and not callable(self.instructions):
            raise _invalid(where, "instructions are text or a function of the turn")
        check_policy(self.policy, where)
        checked_budget(self.budget, where)
        if self.on_takeover not in get_args(OnTakeover):
            raise _invalid(where, f"on_takeover {self.on_takeover!r} is neither resume nor abort")
        if self.on_abort_input not in get_args(OnAbortInput):
            reason = f"on_abort_input {self.on_abort_input!r} is neither next_turn nor fold"
            raise _invalid(where, reason)
        if self.compaction is not None and not isinstance(self.compaction, Compaction):
            raise _invalid(where, "compaction is a Compaction or None")
        object.__setattr__(self, "tools", _checked(self.tools, where))

    @cached_property
    def toolbox(self) -> Mapping[str, Tool[..., Any]]:
        """The tools by name."""
        return {tool.name: tool for tool in self.tools}

    @cached_property
    def terminal(self) -> frozenset[str]:
        """The names of the tools whose result ends the turn."""
        return frozenset(tool.name for tool in self.tools if tool.terminal)

    @cached_property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools as a model sees them."""
        return tuple(tool.spec for tool in self.tools)

    async def instruct(self, turn: TurnContext[Any]) -> str:
        """What the model is told in this turn.

        Raises whatever the instructions' function raises, and `Invalid` if it returns no text.
        """
        if isinstance(self.instructions, str):
            return self.instructions
        text = self.instructions(turn)
        if inspect.isawaitable(text):
            text = await text
        if not isinstance(text, str):
            kind = type(text).__name__
            raise _invalid(f"agent {self.name!r}", f"instructions returned a {kind}, not text")
        return text


def check_policy(policy: AnyPolicy, where: str) -> None:
    """Raise `Invalid` for what is no policy."""
    try:
        wish_of(policy)
    except Invalid as error:
        raise _invalid(where, error.reason) from error


def _checked(tools: Any, where: str) -> tuple[Tool[..., Any], ...]:
    if not isinstance(tools, Sequence):
        raise _invalid(where, "tools are a sequence of tools")
    names: set[str] = set()
    for tool in tools:
        if not isinstance(tool, Tool):
            raise _invalid(where, f"{tool!r:.80} is no tool; decorate it with @tool")
        if tool.name in names:
            raise _invalid(where, f"has two tools named {tool.name!r}")
        if tool.name == READ_RESULT:
            raise _invalid(where, f"every agent has a tool {READ_RESULT!r} already; give name=")
        names.add(tool.name)
    return tuple(tools)


def _invalid(field: str, reason: str) -> Invalid:
    return Invalid(field=field, reason=reason, unchanged=_NOT_MADE)

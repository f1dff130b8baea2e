"""Handlers: turns written in Python, whose durable calls survive their worker."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from typing import Any, Final, Generic, Protocol, cast, get_args

from typing_extensions import TypeVar

from changeover_shared import _identifiers
from changeover_shared._budget import checked_budget
from changeover_shared._errors import Invalid, TooLarge
from changeover_shared._items import (
    AssistantMessage,
    Item,
    Json,
    Phase,
    ToolResult,
    UserMessage,
)
from changeover_shared._units import Duration, duration, milliseconds
from changeover_shared._words import Effect
from changeover_worker._agent import Agent, check_policy
from changeover_worker._models.model import ModelResponse
from changeover_worker._readable import readable
from changeover_worker._tools.output import MAX_BYTES
from changeover_worker._tools.tool import EffectWord
from changeover_worker._turn.durable import (
    DurableCall,
    ModelCall,
    SayCall,
    SleepCall,
    SteeringCall,
    StepCall,
)
from changeover_worker._turn.joining import channels

R = TypeVar("R", default=Any)
T = TypeVar("T")

MAX_NAME: Final = 256
"""How many characters a step's name may have."""
_LONGEST_SLEEP: Final = timedelta(days=36_500)
"""What wakes up in a year of five digits cannot be shown, and much later not even be stored."""


class TurnStopped(BaseException):
    """The handler does not go on here: another worker runs it again, or the turn is over. Let it
    through.

    Like a cancellation it is no `Exception`, so that `except Exception` does not hold it up. One
    that is held up all the same changes nothing: each further durable call raises it again, and
    what the handler returns is ignored.
    """


class StepMismatch(TurnStopped):
    """The handler's durable calls are not those that the turn has recorded. The session is
    quarantined, its turn stays open: put the old order back before an operator lets it go on."""


class DurableCalls(Protocol):
    """Carries out a turn's durable calls."""

    async def carry_out(self, call: DurableCall) -> Any:
        """Return what the call came to, now or in an earlier run of the handler."""
        ...


@dataclass(frozen=True, kw_only=True)
class Turn(Generic[R]):
    """One turn of a session, as its handler sees it.

    The one rule: a handler is run again from the top whenever its turn goes on with another
    worker, and then its finished durable calls answer from the store. So its code between them
    must repeat: the same calls, in the same order, whatever the time, chance or the world say.
    What does not repeat belongs into a step. One call at a time.
    """

    session_id: str
    tenant: str = ""
    turn_id: str
    inputs: tuple[UserMessage, ...]
    """What the turn answers: one message, or those that were joined, in order."""
    messages: tuple[Item, ...] = ()
    """The conversation so far, with `inputs` at its end, as a model may be shown it."""
    context: Mapping[str, str] = field(default_factory=dict)
    """The session's context, fixed when it was created."""
    metadata: Mapping[str, Json] = field(default_factory=dict)
    """What the session has noted about itself."""
    resources: R
    """What the app's lifespan yielded."""
    calls: DurableCalls = field(repr=False, compare=False)

    @property
    def text(self) -> str:
        """The texts of `inputs`, a line each."""
        return "\n".join(message.text for message in self.inputs)

    @property
    def reply_to(self) -> tuple[str, ...]:
        """The channels that `inputs` name, each once, in order; those of messages that steer the
        turn stand at them."""
        return channels(self.inputs)

    @property
    def message(self) -> UserMessage:
        """The first of `inputs`."""
        return self.inputs[0]

    def idempotency_key(self, name: str) -> str:
        """Names a step of this turn for systems that drop repeats: the same for each attempt."""
        return f"{self.session_id}/{self.turn_id}/{name}"

    async def step(
        self,
        name: str,
        function: Callable[[], Awaitable[T]],
        *,
        effect: EffectWord = "once",
        retries: int = 0,
        timeout: Duration = "5m",  # noqa: ASYNC109  of each attempt, not of the call
    ) -> T:
        """Run `function` and commit its result under `name`, which is unique in the turn.

        The result is what JSON makes of it: a pydantic model comes back as a dict, in the first
        run as in every later one. Each of `retries` and the first attempt has `timeout`. Raises
        `StepFailed` when all have failed or the result has no JSON, and `OutcomeUnknown` when the
        worker ended while a step with effect `once` ran; `pure` and `idempotent` ones are run
        again. Raises `Invalid`, and runs nothing, for a name that the turn has used, and for a
        second durable call beside this one.
        """
        where = f"step {name!r:.80}"
        if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME:
            raise _invalid("step", f"a name has 1 to {MAX_NAME} characters, not {name!r:.80}")
        if not callable(function):
            raise _invalid(where, f"{function!r:.80} is no function; give an async one")
        if effect not in get_args(EffectWord):
            known = ", ".join(get_args(EffectWord))
            raise _invalid(where, f"effect {effect!r} is none of {known}")
        if not isinstance(retries, int) or not 0 <= retries <= 1000:
            raise _invalid(where, f"retries are 0 to 1000, not {retries!r:.80}")
        limit = duration(timeout, field=f"{where}: timeout")
        if not limit:
            raise _invalid(where, "a timeout of 0 would let no step end")
        call = StepCall(readable(name), function, Effect(effect), retries, limit)
        return cast(T, await self.calls.carry_out(call))

    async def model(
        self,
        messages: str | Sequence[Item],
        *,
        model: str | None = None,
        instructions: str = "",
        phase: Phase = "commentary",
    ) -> ModelResponse:
        """Ask a model; its answer streams to whoever follows, and is kept.

        `model` is a name of the app's, the session's own if None. With phase `final_answer` its
        text is shown as the turn's answer. Providers' passing failures are retried; a pause of
        over 5 s holds no worker. Raises `ModelError` when it failed for good.
        """
        items = (UserMessage(text=messages),) if isinstance(messages, str) else messages
        if not isinstance(items, Sequence) or not items:
            raise _invalid("model", "messages are text or a sequence of items, at least one")
        for item in items:
            if not isinstance(item, UserMessage | AssistantMessage | ToolResult):
                raise _invalid("model", f"{item!r:.80} is no message and no tool result")
        if not isinstance(instructions, str) or not isinstance(model, str | None):
            raise _invalid("model", "instructions and model are text")
        call = ModelCall(tuple(items), model, instructions, _phase(phase))
        return cast(ModelResponse, await self.calls.carry_out(call))

    async def say(self, text: str, *, phase: Phase = "commentary") -> None:
        """Say something to whoever follows, once; it joins the conversation.

        Raises `Invalid` for a blank text and `TooLarge` for one over 1 MiB.
        """
        if not isinstance(text, str) or not text.strip():
            raise _invalid("say", "the text holds nothing to say")
        text = readable(text)
        size = len(text.encode())
        if size > MAX_BYTES:
            raise TooLarge(what="the text", size=size, limit=MAX_BYTES, remedy="say less")
        await self.calls.carry_out(SayCall(text, _phase(phase)))

    async def sleep(self, span: Duration) -> None:
        """Let time pass. Over a second, no worker and no memory is held meanwhile: the handler
        ends here with `TurnStopped` and is run again at the time. Raises `Invalid` for what is no
        span and for one over 36 500 days."""
        if duration(span, field="sleep") > _LONGEST_SLEEP:
            raise _invalid("sleep", f"{span!s:.40} is over {_LONGEST_SLEEP.days} days")
        await self.calls.carry_out(SleepCall(milliseconds(span, field="sleep")))

    async def steering(self) -> tuple[UserMessage, ...]:
        """Take in the messages that were sent to steer this turn, in order; they end with it.

        What comes later waits for the next call, and is the next turn if there is none. Each call
        is one commit, and answers the same when the handler is run again.
        """
        return cast(tuple[UserMessage, ...], await self.calls.carry_out(SteeringCall()))


@dataclass(frozen=True, eq=False)
class Handler(Agent):
    """A handler in its app: it answers under its name as an agent does.

    Of an agent it has the name, the model, the policy and the compaction; it has no tools and no
    instructions, and a takeover always runs it again.
    """

    _: KW_ONLY
    function: Callable[[Turn[Any]], Awaitable[Any]]

    def __post_init__(self) -> None:
        """Raises `Invalid` for a function that is not `async def` with one parameter."""
        _identifiers.name(self.name, field="handler")
        where = f"handler {self.name!r}"
        check_policy(self.policy, where)
        checked_budget(self.budget, where)
        if not inspect.iscoroutinefunction(inspect.unwrap(self.function)):
            raise _invalid(where, f"{self.function!r:.80} is not async def", "nothing was started")
        try:
            inspect.signature(self.function).bind(None)
        except TypeError as error:
            reason = f"it is called with the turn alone, and that does not fit: {error}"
            raise _invalid(where, reason, "nothing was started") from error


def _phase(phase: Phase) -> Phase:
    if phase not in get_args(Phase):
        raise _invalid("phase", f"{phase!r:.80} is none of {', '.join(get_args(Phase))}")
    return phase


def _invalid(field: str, reason: str, unchanged: str = "nothing was run") -> Invalid:
    return Invalid(field=field, reason=reason, unchanged=unchanged)

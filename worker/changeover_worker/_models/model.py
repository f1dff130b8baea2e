"""What a model is to a worker: one request in, deltas while it streams, one whole response out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol, runtime_checkable

from changeover_shared._errors import ChangeoverError
from changeover_shared._items import AssistantMessage, Item, Phase, Usage


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model sees it; `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One question to a model.

    `items` is a valid conversation: each tool call is followed by its result, in call order.
    """

    instructions: str
    items: tuple[Item, ...]
    tools: tuple[ToolSpec, ...] = ()
    session_id: str = ""
    turn_id: str = ""
    step_id: str = ""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of visible text."""

    text: str
    phase: Phase = "final_answer"


@dataclass(frozen=True, slots=True)
class TextPart:
    """The whole of a text part. What of it has streamed is not said again; what has not is."""

    text: str
    phase: Phase = "final_answer"


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of reasoning; shown live, never kept."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of a tool call's arguments; joined by id, else to the call before.

    For display, unless the response holds neither text nor calls: then the joined calls are run.
    """

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class UsageDelta:
    """Tokens counted so far in this response; replaces the one before.

    Counts if the response has no usage of its own, which replaces it.
    """

    usage: Usage


ModelDelta = TextDelta | TextPart | ReasoningDelta | ToolCallDelta | UsageDelta

Emit = Callable[[ModelDelta], Awaitable[None]]
"""Hand a delta over. Raises `EmitRefused` once the step has ended."""


@dataclass(frozen=True, slots=True)
class ModelResponse:
    """A whole answer: text, or calls, or both; what it leaves out is taken from the stream."""

    message: AssistantMessage
    usage: Usage = field(default_factory=Usage)
    stop: str | None = None
    """`length` when the provider cut the answer, `refusal` when it refused, else None.

    After `length` the last call's `arguments` may be cut: they are then no JSON object.
    """
    served_by: str | None = None
    """Which model answered, if it was not the one that was asked first."""


class EmitRefused(ChangeoverError):
    """The step has ended; what a model says now belongs to nothing."""

    code = "emit_refused"


class ModelError(ChangeoverError):
    """A provider failed. The one exception that leaves an adapter, besides cancellation."""

    code = "model_error"

    def __init__(
        self,
        *,
        kind: str,
        message: str,
        retryable: bool,
        retry_after: timedelta | None = None,
    ) -> None:
        """Raises `TypeError` for a `retry_after` that is no span of time."""
        if not isinstance(retry_after, timedelta | None):
            raise TypeError(f"retry_after is a timedelta or None, not {retry_after!r:.80}")
        super().__init__(message)
        self.kind = kind
        """`provider_auth`, `provider_rate_limit`, `provider_server`, `provider_timeout`,
        `provider_connection`, `provider_stream` (cut or malformed), `provider_request` (the
        provider refused what was sent), `provider_unavailable` (none of a `Fallback`'s models
        could answer), `unscripted`."""
        self.message = message
        self.retryable = retryable
        self.retry_after = retry_after
        """How long the provider asked to be left alone."""


@runtime_checkable
class Model(Protocol):
    """Something that answers requests: `OpenAIModel`, `AnthropicModel`, `ScriptedModel`, yours."""

    @property
    def name(self) -> str:
        """What it is, for people: `openai:gpt-5-mini`. Sessions know it by its name in the app."""
        ...

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Await `emit` for each piece while streaming, and return the whole.

        Raises `ModelError` for everything that the provider or the network did. May be cancelled
        at any await; holds nothing afterwards.
        """
        ...


@runtime_checkable
class ProviderModel(Model, Protocol):
    """A model with a provider behind it: checked when a worker starts, closed when it ends."""

    def check(self) -> None:
        """Raise a `SetupError` if no request could ever succeed, for example without an API key."""
        ...

    async def aclose(self) -> None:
        """Close the connections. The model opens new ones if it is asked again."""
        ...

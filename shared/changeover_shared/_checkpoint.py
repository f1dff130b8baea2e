"""The checkpoint: the small versioned state that a successor needs, one per commit.

It never holds the conversation: the context is a rewritten prefix (`context:<epoch>`) and the
transcript from `context_from` on, so a checkpoint's size does not grow with the conversation.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, ValidationError, model_validator

from changeover_shared._budget import Budget
from changeover_shared._errors import FormatTooNew
from changeover_shared._items import (
    AssistantMessage,
    Count,
    Json,
    StepKind,
    ToolResult,
    TurnStop,
    Usage,
    Wire,
)
from changeover_shared._words import FORMAT, Effect


class PendingCall(Wire):
    """A tool call that is committed. From that commit on it may have run."""

    call_id: str
    name: str
    arguments: str
    effect: Effect
    attempts: Count = 0
    """How often it may have been started, the time that this commit allows included."""
    result: ToolResult | None = None
    terminal: bool = False
    """Its result, unless it is an error, is what the turn comes to."""
    stop: TurnStop | None = None
    """With its result, it ended the turn as failed."""


class ActiveStep(Wire):
    """The model is being asked. A repeat has a new id and the same index."""

    step_id: str
    index: Count
    started_at_ms: Count


class Retry(Wire):
    """The model failed, or was at its limit, and is asked again, at the same index."""

    attempt: Count
    """How many attempts at this step have failed; 0 while no limit has let one through."""
    until_ms: Count
    """When the next one is due, on Redis's clock."""
    error: str = ""
    """Why the newest attempt failed, for people."""
    kind: str = ""
    """The kind of that failure; `limit` when the model was not asked."""
    model: str = ""
    """Which model it was, by its name in the app; with `limit` it may be one of a `Fallback`."""


class HandlerStep(Wire):
    """The step of a handler that is being run, or slept through."""

    name: str
    kind: StepKind = "step"
    effect: Effect = Effect.ONCE
    attempts: int = Field(default=1, ge=1)
    until_ms: Count = 0
    """When a sleep is over."""


class Execution(Wire):
    """The turn that is open."""

    turn_id: str
    submission_ids: tuple[str, ...]
    started_at_ms: Count
    phase: Literal["model", "tools", "completion"] = "model"
    next_step: Count = 0
    step: ActiveStep | None = None
    assistant: AssistantMessage | None = None
    """The message whose calls are pending; it joins the transcript with all their results."""
    calls: tuple[PendingCall, ...] = ()
    model_calls: Count = 0
    tool_calls: Count = 0
    failed_tool_calls: Count = 0
    op: Literal["message", "compact"] = "message"
    """What the turn does: answer a message, or rewrite the context."""
    first_item: Count = 0
    """The number of its first transcript item."""
    retry: Retry | None = None
    """The model step that is next, or in flight, has failed before."""
    waits: tuple[str, ...] = ()
    """The waits that it has opened and not closed."""
    handler_step: HandlerStep | None = None
    budget: Budget | None = None
    """The tightest of its submissions'."""
    reply_to: tuple[str, ...] = ()
    """The channels that its messages name, each once, in the order in which they were taken."""
    takeovers: Count = 0
    """How often its worker was replaced without having handed it off."""
    trace: str = ""
    """The span of its newest holder, as a W3C `traceparent`; '' if that did not trace."""
    usage: Usage = Usage()

    @model_validator(mode="after")
    def _consistent(self) -> Execution:
        if not self.turn_id or not self.submission_ids:
            raise ValueError("active execution identifiers cannot be empty")
        if self.failed_tool_calls > self.tool_calls:
            raise ValueError("active execution failed-tool count exceeds tool count")
        if self.step is not None and self.step.started_at_ms < self.started_at_ms:
            raise ValueError("active model step predates its execution")
        return self


class Streamed(Wire):
    """Journal numbers of deltas whose step was completed: they may be deleted."""

    first: int
    last: int
    completed_ms: int


class Stats(Wire):
    """What the session has done since it began."""

    turns: Count = 0
    failed_turns: Count = 0
    aborted_turns: Count = 0
    model_calls: Count = 0
    tool_calls: Count = 0
    failed_tool_calls: Count = 0
    elapsed_ms: Count = 0
    usage: Usage = Usage()

    @model_validator(mode="after")
    def _consistent(self) -> Stats:
        if self.failed_turns + self.aborted_turns > self.turns:
            raise ValueError("more turns failed or were aborted than there were")
        if self.failed_tool_calls > self.tool_calls:
            raise ValueError("more tool calls failed than there were")
        return self


class LeftOut(Wire):
    """Transcript items that a rollback took out of the context, both ends included."""

    first: int = Field(ge=1)
    last: int = Field(ge=1)
    note: str = ""
    """What the model is told instead: which tools had run."""


class Checkpoint(Wire):
    """One session's state, as of one commit."""

    version: int = FORMAT
    session_id: str
    model: str | None = None
    """The name of a model in the app, never a provider's."""
    metadata: dict[str, Json] = Field(default_factory=dict)
    context_epoch: Count = 0
    context_from: int = Field(default=1, ge=1)
    """The first transcript item after the rewritten prefix."""
    left_out: tuple[LeftOut, ...] = ()
    """What a rollback hides of the transcript from `context_from` on, in order."""
    compact_above: int = Field(default=0, ge=0)
    """The context is not compacted by itself before it comes to more tokens than this: it was
    tried at that size."""
    execution: Execution | None = None
    stats: Stats = Stats()
    streamed: tuple[Streamed, ...] = ()
    """What a later commit deletes from the journal, oldest first."""


def encode_checkpoint(checkpoint: Checkpoint) -> str:
    """Write a checkpoint as JSON, without what has its default value."""
    body = checkpoint.model_dump_json(exclude_defaults=True, exclude={"version"})
    return f'{{"version":{checkpoint.version},{body[1:]}'


def decode_checkpoint(body: bytes | str, *, session_id: str) -> Checkpoint:
    """Read a session's checkpoint.

    Raises `FormatTooNew` for another version, and `ValueError` when it belongs to another
    session or is damaged.
    """
    try:
        checkpoint = Checkpoint.model_validate_json(body)
    except ValidationError as error:
        raise ValueError(f"checkpoint of {session_id!r} is damaged: {error}") from error
    if checkpoint.version != FORMAT:
        raise FormatTooNew(what=f"session {session_id!r}", found=str(checkpoint.version))
    if checkpoint.session_id != session_id:
        raise ValueError("checkpoint does not match the requested session")
    return checkpoint

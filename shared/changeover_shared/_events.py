"""Events: what a session's journal holds and followers read.

An event is `{seq, at_ms, fence, epoch, type, submission_id, turn_id, step_id}` and what its type
adds. On the wire inside Redis the common fields are stream fields and the rest is `body`; towards
people an event is one flat JSON object. An unknown type parses as plain `Event`, so that old
clients survive new workers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from changeover_shared._items import Attachment, Json, Phase, Usage, Wire
from changeover_shared._words import Effect, Ending, StepEnding, WorkerChange

_COMMON: Final = frozenset(
    {"seq", "at_ms", "fence", "epoch", "type", "submission_id", "turn_id", "step_id"}
)


class Event(BaseModel):
    """One entry of the journal. `seq` is dense per session and never reused."""

    model_config = ConfigDict(frozen=True, extra="allow")

    wire_type: ClassVar[str] = ""

    seq: int = 0
    at_ms: int = 0
    """When it was committed, on Redis's clock; never goes back within a session."""
    fence: int = 0
    """The grant under which it was written; 0 before the first."""
    epoch: int = 1
    type: str = ""
    submission_id: str | None = None
    turn_id: str | None = None
    step_id: str | None = None

    def model_post_init(self, _: Any, /) -> None:
        if not self.type:
            object.__setattr__(self, "type", self.wire_type)

    @property
    def at(self) -> datetime:
        """`at_ms` as a time."""
        return datetime.fromtimestamp(self.at_ms / 1000, UTC)

    def body(self) -> str:
        """What the type adds, without defaults, as the JSON that the journal stores."""
        return self.model_dump_json(exclude=set(_COMMON), exclude_defaults=True)

    def to_json(self) -> str:
        """The whole event as one flat JSON object, as `--json` prints it."""
        return self.model_dump_json(exclude_none=True)


class _Known(Event):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Failure(Wire):
    """Why something failed, as data."""

    kind: str
    """A short stable word; `docs/operating.md` has them all."""
    message: str
    retryable: bool = False
    retry_after_ms: int | None = None
    """How long the provider asked to be left alone, if it did."""


class SessionConfigured(_Known):
    """The session was taken up for the first time, or with another configuration."""

    wire_type = "session_configured"
    agent: str
    queue: str
    model: str | None = None


class ModelChanged(_Known):
    """The session uses another model from here on."""

    wire_type = "model_changed"
    model: str
    previous: str | None = None
    reason: str = "requested"
    """`requested`, or `unregistered` when the saved model is not in the app any more."""


class ContextCompacted(_Known):
    """The older part of what the model is shown is a summary from here on; the transcript is as
    it was. Tokens are estimates."""

    wire_type = "context_compacted"
    before_tokens: int
    after_tokens: int
    usage: Usage = Usage()
    """What the summary cost."""


class ContextRolledBack(_Known):
    """A turn and all later ones are not shown to the model any more; the transcript keeps them."""

    wire_type = "context_rolled_back"
    to: str
    """The first turn that is left out."""
    tools: tuple[str, ...] = ()
    """The calls that had run in them: what they did outside stays done."""


class SessionResumeRequested(_Known):
    """Somebody asked to go on with another session."""

    wire_type = "session_resume_requested"
    target: str
    context: dict[str, str] = Field(default_factory=dict)
    """The other session's context."""


class SessionClosed(_Known):
    """The session takes nothing more."""

    wire_type = "session_closed"
    reason: str = ""


class SessionDeleted(_Known):
    """The session is gone with all it held. Its journal can be read for the deduplication
    window."""

    wire_type = "session_deleted"
    reason: str = ""


class Message(_Known):
    """A message was accepted; written by the submit script itself."""

    wire_type = "message"
    text: str
    attachments: tuple[Attachment, ...] = ()
    author: str = "user"


class TurnStarted(_Known):
    """A turn took its inputs."""

    wire_type = "turn_started"
    submission_ids: tuple[str, ...]


class TurnCompleted(_Known):
    """The turn answered."""

    wire_type = "turn_completed"
    submission_ids: tuple[str, ...]
    text: str = ""
    output: Json = None
    usage: Usage = Usage()
    stop: str | None = None
    """`length` or `refusal` when the answer ended so."""


class TurnAborted(_Known):
    """The turn was interrupted."""

    wire_type = "turn_aborted"
    submission_ids: tuple[str, ...]
    reason: str = ""


class TurnFailed(_Known):
    """The turn failed; the session goes on with what comes next."""

    wire_type = "turn_failed"
    submission_ids: tuple[str, ...]
    error: Failure


class TurnParked(_Known):
    """The turn waits durably, without a worker."""

    wire_type = "turn_parked"
    reason: str
    """`retry`: the provider asked to be left alone; `sleep`: a handler sleeps."""
    until_ms: int | None = None
    """When it goes on by itself, on Redis's clock."""

    @property
    def until(self) -> datetime | None:
        """`until_ms` as a time."""
        return None if self.until_ms is None else datetime.fromtimestamp(self.until_ms / 1000, UTC)


class TurnResumed(_Known):
    """A parked turn goes on."""

    wire_type = "turn_resumed"
    reason: str


class StepStarted(_Known):
    """The model is about to be asked."""

    wire_type = "step_started"
    index: int
    model: str


class Delta(_Known):
    """A piece of text as it streams. It counts only if its step completes."""

    wire_type = "delta"
    phase: Phase = "final_answer"
    text: str


class AssistantSaid(_Known):
    """The committed text of a step: it wins over the deltas."""

    wire_type = "assistant_message"
    phase: Phase = "final_answer"
    text: str


class StepCompleted(_Known):
    """A model step ended. `removed` names the journal ranges of its deltas, which may be gone."""

    wire_type = "step_completed"
    index: int
    ending: StepEnding
    usage: Usage = Usage()
    removed: tuple[tuple[int, int], ...] = ()


class ToolCallBegin(_Known):
    """A tool call is committed and may start from here on."""

    wire_type = "tool_call_begin"
    call_id: str
    name: str
    arguments: str
    effect: Effect


class ToolCallEnd(_Known):
    """A tool call's result is committed."""

    wire_type = "tool_call_end"
    call_id: str
    name: str
    output: Json
    is_error: bool = False
    unknown: bool = False
    """The call may have run and is not run again."""


class WorkerChanged(_Known):
    """Another incarnation than before was granted the session."""

    wire_type = "worker_changed"
    reason: WorkerChange
    previous: str
    current: str


class SubmissionMerged(_Known):
    """A message became part of a turn that answers another one as well: it was joined to it, or
    steers it. It ends with that turn."""

    wire_type = "submission_merged"
    by: str
    """The turn's first submission."""


class SubmissionSuperseded(_Known):
    """A waiting submission gave way to a newer one."""

    wire_type = "submission_superseded"
    by: str = ""


class SubmissionCancelled(_Known):
    """A waiting submission was cancelled."""

    wire_type = "submission_cancelled"
    by: str = ""


class SubmissionDeadLettered(_Known):
    """An operator gave a submission of a quarantined session up."""

    wire_type = "submission_dead_lettered"
    by: str = ""


class SessionQuarantined(_Known):
    """The session is stopped until an operator acts."""

    wire_type = "session_quarantined"
    attempts: int = 0
    """Grants in a row without progress."""
    cause: Literal["attempts", "time", "worker", "operator"] = "attempts"
    """Too many grants without progress, too long without it, its own worker found it broken, or an
    operator stopped it."""
    error: str = ""
    """What stopped it, if that is known; an operator's reason."""
    worker: str = ""
    """The incarnation that held it last, when that ended without a word."""
    by: str = ""
    """The operator, if one said who it is."""


class SessionRedriven(_Known):
    """An operator has ended the quarantine: the session tries again."""

    wire_type = "session_redriven"
    by: str = ""
    dropped: tuple[str, ...] = ()
    """The submissions that were given up."""
    ended_turn: str | None = None
    """The turn that had taken them, which has ended with them."""


class Warned(_Known):
    """Something that people should know, and that changed nothing else."""

    wire_type = "warning"
    code: str
    text: str = ""


class Gap(_Known):
    """Never stored: events from `first` to `last` are not in the journal any more. The journal
    goes on after `seq`."""

    wire_type = "gap"
    first: int
    last: int
    reason: str = "trimmed"
    """`trimmed`: retention took them. `rewound`: a failover of the server lost them, and the
    numbers from `first` on come again with other events."""


_KNOWN: Final[Mapping[str, type[Event]]] = {
    kind.wire_type: kind for kind in _Known.__subclasses__()
}


def decode_event(entry: bytes, fields: Mapping[bytes, bytes]) -> Event:
    """Read a journal entry: its stream id `<seq>-0` and its fields."""
    kind = fields[b"type"].decode()
    values: dict[str, Any] = json.loads(fields[b"body"] or b"{}")
    values.update(
        type=kind,
        seq=int(entry.partition(b"-")[0]),
        at_ms=int(fields[b"at"]),
        fence=int(fields[b"fence"]),
        epoch=int(fields[b"epoch"]),
        submission_id=fields[b"sub"].decode() or None,
        turn_id=fields[b"turn"].decode() or None,
        step_id=fields[b"step"].decode() or None,
    )
    return _KNOWN.get(kind, Event).model_validate(values)


def ending_of(event: Event, submission_id: str) -> Ending | None:
    """How `submission_id` ended with this event, or None if it did not."""
    match event:
        case TurnCompleted() if submission_id in event.submission_ids:
            return Ending.COMPLETED
        case TurnAborted() if submission_id in event.submission_ids:
            return Ending.ABORTED
        case TurnFailed() if submission_id in event.submission_ids:
            return Ending.FAILED
        case SubmissionSuperseded() if event.submission_id == submission_id:
            return Ending.SUPERSEDED
        case SubmissionCancelled() if event.submission_id == submission_id:
            return Ending.CANCELLED
        case SubmissionDeadLettered() if event.submission_id == submission_id:
            return Ending.DEAD_LETTERED
        case ModelChanged() | SessionClosed() | ContextRolledBack() | SessionResumeRequested() if (
            event.submission_id == submission_id
        ):
            return Ending.COMPLETED
        case _:
            return None

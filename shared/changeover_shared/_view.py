"""The view: what a screen shows of a session, folded from its journal.

`View.apply` is the one reducer. Its rules, which every other reader of a journal must share:

* an event whose `seq` is not above the view's is a repeat and changes nothing;
* streamed text counts only until its step ends: a completed step's text is what
  `assistant_message` committed, any other ending leaves nothing of it;
* a quarantined session stays so, whatever its senders do meanwhile;
* a parked turn goes on with `turn_resumed` or the next step, and ends like any other;
* a gap takes away what the missing events may have changed;
* a gap that is `rewound` goes back to the number before it: what was said from there on is not
  part of the session's history any more, and the same numbers come again.

`tests/vectors/view.json` holds journals with the views that they must fold to.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from changeover_shared._events import (
    AssistantSaid,
    Delta,
    Event,
    Failure,
    Gap,
    Message,
    ModelChanged,
    SessionClosed,
    SessionConfigured,
    SessionDeleted,
    SessionQuarantined,
    SessionRedriven,
    StepCompleted,
    StepStarted,
    SubmissionCancelled,
    SubmissionDeadLettered,
    SubmissionMerged,
    SubmissionSuperseded,
    ToolCallBegin,
    ToolCallEnd,
    TurnAborted,
    TurnCompleted,
    TurnFailed,
    TurnParked,
    TurnResumed,
    TurnStarted,
    Warned,
)
from changeover_shared._items import Attachment, Json, Phase, Usage, Wire
from changeover_shared._words import Effect, Ending

ViewStatus = Literal["idle", "ready", "running", "parked", "quarantined", "closed", "deleted"]
"""What a journal can tell: `ready` while a message waits, `running` while a turn is open, `parked`
while that turn waits without a worker."""


class ViewMessage(Wire):
    """Something that was said, by a person or by the agent."""

    seq: int
    role: Literal["user", "assistant"]
    text: str
    author: str = "user"
    attachments: tuple[Attachment, ...] = ()
    phase: Phase | None = None
    submission_id: str | None = None
    turn_id: str | None = None
    ending: Ending | None = None
    """How the submission of a user's message ended; None while it waits or runs."""


class ViewTool(Wire):
    """A tool call of the newest turn."""

    call_id: str
    name: str
    arguments: str
    effect: Effect
    state: Literal["running", "done", "failed", "unknown"] = "running"
    output: Json = None


class View(Wire):
    """A session as its journal tells it up to `seq`. Frozen: `apply` answers with another one."""

    seq: int = 0
    status: ViewStatus = "idle"
    agent: str | None = None
    model: str | None = None
    turn: str | None = None
    """The open turn."""
    parked: str | None = None
    """What the open turn waits for without a worker: `retry`, `sleep`."""
    until_ms: int | None = None
    """When a parked turn goes on by itself, if a time is known."""
    messages: tuple[ViewMessage, ...] = ()
    step: str | None = None
    """The model step that `text` belongs to."""
    text: str = ""
    """What the running step has streamed so far; never more than a promise."""
    tools: tuple[ViewTool, ...] = ()
    usage: Usage = Usage()
    error: Failure | None = None
    """Why the newest turn failed."""
    complete: bool = True
    """False once a gap has hidden events from this view."""

    def apply(self, event: Event) -> View:
        """Answer with the view after `event`; the same view if the event is a repeat."""
        goes_back = isinstance(event, Gap) and event.reason == "rewound"
        if event.seq <= self.seq and not goes_back:
            return self
        changes = _changes(self, event)
        view = self.model_copy(update={**changes, "seq": event.seq})
        return view.model_copy(update={"status": _status(view, event)})

    def apply_all(self, events: Iterable[Event]) -> View:
        """Answer with the view after each of `events`, in order."""
        view = self
        for event in events:
            view = view.apply(event)
        return view


def _changes(view: View, event: Event) -> dict[str, Any]:
    match event:
        case Message() | SubmissionSuperseded() | SubmissionCancelled() | SubmissionDeadLettered():
            return _submission_changes(view, event)
        case SubmissionMerged():
            return {"messages": _taken(view, (event.submission_id,), event.turn_id)}
        case TurnStarted() | TurnCompleted() | TurnAborted() | TurnFailed():
            return _turn_changes(view, event)
        case TurnParked():
            return {"parked": event.reason, "until_ms": event.until_ms}
        case TurnResumed() | SessionQuarantined():
            return _NOT_PARKED
        case SessionRedriven(ended_turn=str()):
            return {**_NOT_PARKED, "turn": None, "step": None, "text": "", "tools": ()}
        case StepStarted() | Delta() | AssistantSaid() | StepCompleted():
            return _step_changes(view, event)
        case ToolCallBegin() | ToolCallEnd():
            return _tool_changes(view, event)
        case SessionDeleted():
            return {**_NOT_PARKED, "turn": None, "step": None, "text": "", "tools": ()}
        case SessionConfigured():
            return {"agent": event.agent, "model": event.model or view.model}
        case ModelChanged():
            return {"model": event.model}
        case Gap():
            return _gap_changes(view, event)
        case _:
            return {}


_OF_SENDERS = (
    Message,
    SubmissionSuperseded,
    SubmissionCancelled,
    SubmissionDeadLettered,
    Warned,
)
"""What a session's journal gets without anybody who runs it."""

_NOT_PARKED: dict[str, Any] = {"parked": None, "until_ms": None}


def _status(view: View, event: Event) -> ViewStatus:
    if isinstance(event, SessionDeleted):
        return "deleted"
    if view.status == "closed" or isinstance(event, SessionClosed):
        return "closed"
    if isinstance(event, SessionQuarantined):
        return "quarantined"
    if view.status == "quarantined" and isinstance(event, _OF_SENDERS):
        return "quarantined"
    if view.turn is not None:
        return "running" if view.parked is None else "parked"
    waits = any(m.role == "user" and m.ending is None for m in view.messages)
    return "ready" if waits else "idle"


def _gap_changes(view: View, gap: Gap) -> dict[str, Any]:
    changes: dict[str, Any] = {
        "complete": False,
        "turn": None,
        "step": None,
        "text": "",
        "tools": (),
        **_NOT_PARKED,
    }
    if gap.reason == "rewound":
        kept = tuple(message for message in view.messages if message.seq < gap.first)
        changes |= {"status": "idle", "messages": kept}
    return changes


def _submission_changes(
    view: View,
    event: Message | SubmissionSuperseded | SubmissionCancelled | SubmissionDeadLettered,
) -> dict[str, Any]:
    match event:
        case Message():
            said = ViewMessage(
                seq=event.seq,
                role="user",
                text=event.text,
                author=event.author,
                attachments=event.attachments,
                submission_id=event.submission_id,
            )
            return {"messages": (*view.messages, said)}
        case SubmissionSuperseded():
            ending = Ending.SUPERSEDED
        case SubmissionCancelled():
            ending = Ending.CANCELLED
        case SubmissionDeadLettered():
            ending = Ending.DEAD_LETTERED
    return {"messages": _ended(view, (event.submission_id,), ending)}


def _turn_changes(
    view: View, event: TurnStarted | TurnCompleted | TurnAborted | TurnFailed
) -> dict[str, Any]:
    if isinstance(event, TurnStarted):
        taken = _taken(view, event.submission_ids, event.turn_id)
        cleared = {"step": None, "text": "", "tools": (), "error": None, **_NOT_PARKED}
        return {"turn": event.turn_id, "messages": taken, **cleared}
    error = event.error if isinstance(event, TurnFailed) else None
    messages = _ended(view, event.submission_ids, _ENDINGS[type(event)], event.turn_id)
    if isinstance(event, TurnCompleted) and event.text and not _answered(view, event):
        answer = ViewMessage(
            seq=event.seq,
            role="assistant",
            text=event.text,
            author=view.agent or "assistant",
            phase="refusal" if event.stop == "refusal" else "final_answer",
            turn_id=event.turn_id,
        )
        messages = (*messages, answer)
    ended = {"turn": None, "step": None, "text": "", "messages": messages, "error": error}
    return {**ended, **_NOT_PARKED}


_ENDINGS: dict[type[Event], Ending] = {
    TurnCompleted: Ending.COMPLETED,
    TurnAborted: Ending.ABORTED,
    TurnFailed: Ending.FAILED,
}


def _answered(view: View, event: TurnCompleted) -> bool:
    """Whether the turn's answer stands among the messages already."""
    return any(
        m.role == "assistant" and m.turn_id == event.turn_id and m.phase != "commentary"
        for m in view.messages
    )


def _taken(
    view: View, submission_ids: Iterable[str | None], turn_id: str | None
) -> tuple[ViewMessage, ...]:
    return tuple(
        m.model_copy(update={"turn_id": turn_id})
        if m.role == "user" and m.submission_id in submission_ids
        else m
        for m in view.messages
    )


def _ended(
    view: View, submission_ids: Iterable[str | None], ending: Ending, turn_id: str | None = None
) -> tuple[ViewMessage, ...]:
    return tuple(
        m.model_copy(update={"ending": ending, "turn_id": turn_id or m.turn_id})
        if m.role == "user" and m.submission_id in submission_ids
        else m
        for m in view.messages
    )


def _step_changes(
    view: View, event: StepStarted | Delta | AssistantSaid | StepCompleted
) -> dict[str, Any]:
    match event:
        case StepStarted():
            began = {"turn": event.turn_id or view.turn, "step": event.step_id, "text": ""}
            return {**began, **_NOT_PARKED}
        case Delta():
            before = view.text if event.step_id == view.step else ""
            return {"step": event.step_id, "text": before + event.text}
        case AssistantSaid():
            said = ViewMessage(
                seq=event.seq,
                role="assistant",
                text=event.text,
                author=view.agent or "assistant",
                phase=event.phase,
                turn_id=event.turn_id,
            )
            return {"messages": (*view.messages, said), "step": None, "text": ""}
        case StepCompleted():
            return {"step": None, "text": "", "usage": view.usage + event.usage}


def _tool_changes(view: View, event: ToolCallBegin | ToolCallEnd) -> dict[str, Any]:
    others = tuple(tool for tool in view.tools if tool.call_id != event.call_id)
    if isinstance(event, ToolCallBegin):
        call = ViewTool(
            call_id=event.call_id, name=event.name, arguments=event.arguments, effect=event.effect
        )
        return {"tools": (*others, call)}
    state = "unknown" if event.unknown else "failed" if event.is_error else "done"
    ended = tuple(
        tool.model_copy(update={"state": state, "output": event.output})
        if tool.call_id == event.call_id
        else tool
        for tool in view.tools
    )
    return {"tools": ended}

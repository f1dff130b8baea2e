"""What people read of a journal: events in, lines out. No I/O here."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from changeover.cli._output import clock, one_line, shown
from changeover_shared._events import (
    AssistantSaid,
    ContextCompacted,
    ContextRolledBack,
    Event,
    Gap,
    Message,
    ModelChanged,
    SessionClosed,
    SessionConfigured,
    SessionDeleted,
    SessionQuarantined,
    SessionRedriven,
    StepCompleted,
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
    Warned,
    WorkerChanged,
)
from changeover_shared._identifiers import worker_of
from changeover_shared._units import show_duration
from changeover_shared._words import StepEnding

_INDENT: Final = " " * 10
_CHANGES: Final = {
    "handed_off": "handed it off",
    "taken_over": "lost its lease",
    "evicted": "was declared dead",
}
_WARNINGS: Final = {
    "no_turn": "a request to stop the turn came while none was running",
    "stale_turn": "a request to stop a turn came after that turn; the running one goes on",
    "stale": "an answer came that nobody waits for any more",
    "answered": "a second answer came; the first one stands",
    "length": "the model's answer was cut off by its length limit",
    "blank_answer": "the model answered without any text",
    "unknown_model": "the app does not have the model; the session keeps the one that it has",
    "unknown_op": "the worker's release does not know the operation; it was not carried out",
    "compaction_failed": "the context could not be made smaller; all of it is kept",
    "nothing_to_compact": "the context is small enough; all of it is kept",
    "context_damaged": "what is stored of the context is damaged; the model is shown the rest",
    "no_agent": "the worker's app does not have the session's agent; it waits for one that has",
}
"""What a warning without a text of its own means."""


_PARKS: Final = {
    "retry": "the model failed and is asked again then",
    "sleep": "it sleeps",
}
"""What a turn parks for."""


@dataclass
class Lines:
    """Follows one journal; `agent` is who answers in it."""

    agent: str
    _calls: dict[str, ToolCallBegin] = field(default_factory=dict)

    def of(self, event: Event) -> list[str]:
        """The lines that an event adds; most add none."""
        match event:
            case Message():
                who = "you" if event.author == "user" else event.author
                return self._said(event, who, event.text)
            case AssistantSaid() if event.text:
                return self._said(event, self.agent, event.text)
            case ToolCallBegin():
                self._calls[event.call_id] = event
                return []
            case ToolCallEnd():
                return self._said(event, self.agent, self._called(event))
            case TurnCompleted() if event.stop:
                return [self._rule(f"the answer ended early: {event.stop}")]
            case TurnCompleted() if event.output is not None:
                return self._said(
                    event, self.agent, f"→ {json.dumps(event.output, ensure_ascii=False)}"
                )
            case _:
                told = self._told(event)
                return [] if told is None else [self._rule(told)]

    def _told(self, event: Event) -> str | None:
        match event:
            case SessionConfigured():
                self.agent = event.agent
                return None
            case ModelChanged():
                return f"model {event.model} ({event.reason})"
            case WorkerChanged():
                change = _CHANGES[event.reason]
                return (
                    f"{worker_of(event.current)} took over ({worker_of(event.previous)} {change})"
                )
            case StepCompleted() if event.ending is StepEnding.INTERRUPTED:
                return f"step {event.index} was cut off: what it said does not count"
            case TurnAborted():
                why = "" if event.reason in ("", "interrupted") else f": {event.reason}"
                return f"interrupted{why}"
            case TurnFailed():
                return f"failed: {event.error.kind}: {event.error.message}"
            case ContextCompacted():
                return (
                    f"the older part is a summary from here on: about {event.before_tokens} "
                    f"tokens became {event.after_tokens}"
                )
            case ContextRolledBack():
                ran = f"; not undone: {one_line(', '.join(event.tools))}" if event.tools else ""
                return f"the model is not shown {event.to} and what came after it any more{ran}"
            case SubmissionCancelled() | SubmissionSuperseded() | SubmissionDeadLettered():
                word = event.type.removeprefix("submission_").replace("_", " ")
                return f"{event.submission_id} {word}"
            case SubmissionMerged():
                return f"{event.submission_id} joins the turn"
            case StepCompleted() if event.ending is StepEnding.RETRYING:
                return f"step {event.index} failed: it is asked again, what it said does not count"
            case TurnParked():
                return parked(event.reason, event.until_ms)
            case SessionQuarantined() if event.error and event.cause in ("worker", "operator"):
                return f"quarantined: {event.error}"
            case SessionQuarantined() if event.error:
                return f"quarantined after {event.attempts} attempts: {event.error}"
            case SessionQuarantined():
                return f"quarantined after {event.attempts} attempts"
            case SessionRedriven():
                who = f" by {event.by}" if event.by else ""
                ended = f"; {event.ended_turn} ended with what it had taken" * bool(
                    event.ended_turn
                )
                return f"redriven{who}{ended}"
            case SessionDeleted():
                return f"deleted{f': {event.reason}' if event.reason else ''}"
            case SessionClosed():
                return f"closed{f': {event.reason}' if event.reason else ''}"
            case Warned():
                return f"warning: {event.text or _WARNINGS.get(event.code, event.code)}"
            case Gap(reason="rewound"):
                return f"events {event.first} to {event.last} are lost; their numbers come again"
            case Gap():
                return f"events {event.first} to {event.last} are not kept any more"
            case _:
                return None

    def _said(self, event: Event, who: str, text: str) -> list[str]:
        first, *rest = shown(text).split("\n")
        indent = _INDENT + " " * (max(8, len(who)) + 1)
        return [f"{clock(event.at_ms)}  {shown(who):<8} {first}", *(indent + line for line in rest)]

    def _called(self, end: ToolCallEnd) -> str:
        begun = self._calls.pop(end.call_id, None)
        written = call(end.name, begun.arguments if begun else "{}")
        if end.unknown:
            return f"{written} ? it may have run, and is not run again"
        took = ""
        if begun is not None:
            took = f" {show_duration(timedelta(milliseconds=end.at_ms - begun.at_ms))}"
        return f"{written} {'✗' if end.is_error else '✓'}{took}"

    def _rule(self, text: str) -> str:
        return f"{_INDENT}── {shown(text)} ──"


def parked(reason: str, until_ms: int | None) -> str:
    """What a parked turn waits for."""
    until = "waits" if until_ms is None else f"waits until {clock(until_ms)}"
    return f"{until}: {_PARKS.get(reason, reason)}"


def call(name: str, arguments: str) -> str:
    """A tool call as people write it: one argument bare, several with their names."""
    try:
        given = json.loads(arguments)
    except ValueError:
        return one_line(f"{name}({arguments})")
    if not isinstance(given, dict):
        return one_line(f"{name}({arguments})")
    values = {key: json.dumps(value, ensure_ascii=False) for key, value in given.items()}
    if len(values) == 1:
        return one_line(f"{name}({next(iter(values.values()))})")
    return one_line(f"{name}({', '.join(f'{key}={value}' for key, value in values.items())})")


def journal_line(event: Event) -> str:
    """An event as `--events` shows it: number, time, fence, type, and what it adds."""
    about = " ".join(part for part in (event.turn_id, event.step_id) if part)
    body = event.body()
    rest = "  ".join(part for part in (about, "" if body == "{}" else body) if part)
    return shown(
        f"{event.seq:>6}  {clock(event.at_ms)}  f{event.fence}  {event.type}  {rest}"
    ).rstrip()

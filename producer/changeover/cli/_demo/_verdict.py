"""Whether the promises were kept, from what Redis holds when all is over. No I/O here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from changeover_shared._events import (
    Event,
    Message,
    StepCompleted,
    ToolCallEnd,
    TurnCompleted,
    WorkerChanged,
)
from changeover_shared._items import AssistantMessage, ToolResult
from changeover_shared._results import SessionInfo, TranscriptItem, TurnRecord
from changeover_shared._words import Ending, WorkerChange

Act = Literal["kill", "freeze", "drain"]

CALLS = 2
"""How many tool calls the demonstration's turn makes."""


@dataclass(frozen=True)
class Facts:
    """What is in Redis, and what was seen on the way there."""

    info: SessionInfo
    events: Sequence[Event]
    transcript: Sequence[TranscriptItem]
    turns: Sequence[TurnRecord]
    runs: Sequence[str]
    """Each run of the tool, as the tool itself noted it."""
    late_answer: str | None = None
    """What Redis answered to the write that came too late; None without one."""


@dataclass(frozen=True)
class Check:
    """One promise: the words for a kept one, or what is wrong."""

    kept: str
    wrong: str | None = None


@dataclass(frozen=True)
class Verdict:
    """All promises of an act."""

    checks: tuple[Check, ...]

    @classmethod
    def failed(cls, why: str) -> Verdict:
        """The verdict on an act that did not come to its end."""
        return cls((Check("", why),))

    @property
    def broken(self) -> tuple[str, ...]:
        """What is wrong; nothing when every promise was kept."""
        return tuple(check.wrong for check in self.checks if check.wrong is not None)

    @property
    def kept(self) -> str:
        """The kept promises on one line."""
        return " · ".join(c.kept for c in self.checks if c.wrong is None and c.kept)


def judge(act: Act, facts: Facts) -> Verdict:
    """Check every promise of an act."""
    checks = [
        _gapless(facts),
        _answered_once(facts),
        _ran_once_each(facts),
        _fences_rise(facts),
        _taken_over_once(act, facts),
    ]
    if act == "freeze":
        checks.append(_late_write_refused(facts))
    return Verdict(tuple(checks))


def _gapless(facts: Facts) -> Check:
    """Each number up to the newest is an event, or streamed text that a completed step replaced."""
    there = [event.seq for event in facts.events]
    removed = {
        seq
        for event in facts.events
        if isinstance(event, StepCompleted)
        for first, last in event.removed
        for seq in range(first, last + 1)
    }
    newest = facts.info.seq
    missing = set(range(1, newest + 1)) - set(there) - removed
    kept = f"journal 1..{newest} without a gap"
    if there != sorted(set(there)):
        return Check(kept, "the journal repeats a number")
    if missing or set(there) - set(range(1, newest + 1)):
        return Check(kept, f"the journal has a gap: {sorted(missing)} of 1..{newest}")
    return Check(kept)


def _answered_once(facts: Facts) -> Check:
    messages = sum(1 for event in facts.events if isinstance(event, Message))
    ends = sum(1 for event in facts.events if isinstance(event, TurnCompleted))
    answers = sum(
        1
        for numbered in facts.transcript
        if isinstance(numbered.item, AssistantMessage) and not numbered.item.tool_calls
    )
    completed = sum(1 for turn in facts.turns if turn.ending is Ending.COMPLETED)
    kept = f"{messages} message, {answers} answer"
    if (messages, ends, answers, completed, len(facts.turns)) == (1, 1, 1, 1, 1):
        return Check(kept)
    return Check(
        kept,
        f"{messages} message, {answers} answers, {ends} ends, {completed} of {len(facts.turns)} "
        "turns completed: each must be 1",
    )


def _ran_once_each(facts: Facts) -> Check:
    told = sum(1 for event in facts.events if isinstance(event, ToolCallEnd))
    stored = sum(1 for numbered in facts.transcript if isinstance(numbered.item, ToolResult))
    ran = len(facts.runs)
    if (ran, told, stored) == (CALLS, CALLS, CALLS):
        return Check("check_region ran twice, as it should")
    return Check(
        "", f"check_region ran {ran} times, with {told} events and {stored} results: not {CALLS}"
    )


def _fences_rise(facts: Facts) -> Check:
    fences = [event.fence for event in facts.events]
    if fences == sorted(fences) and fences and fences[-1] == facts.info.fence == 2:
        return Check("fences 1, 2")
    return Check("", f"the fences {sorted(set(fences))} do not rise by one to {facts.info.fence}")


def _taken_over_once(act: Act, facts: Facts) -> Check:
    changes = [event for event in facts.events if isinstance(event, WorkerChanged)]
    handed = act == "drain"
    kept = "1 hand-off" if handed else "1 takeover"
    if len(changes) != 1:
        return Check(kept, f"the worker changed {len(changes)} times, not once")
    if (changes[0].reason is WorkerChange.HANDED_OFF) != handed:
        return Check(kept, f"the worker changed because it was {changes[0].reason}")
    return Check(kept)


def _late_write_refused(facts: Facts) -> Check:
    if facts.late_answer == "LOST":
        return Check("1 late write refused")
    return Check("", f"the late write was answered {facts.late_answer}, not LOST: two writers")

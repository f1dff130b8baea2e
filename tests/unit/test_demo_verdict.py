"""The verdict of the demonstration finds every broken promise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from changeover.cli._demo._verdict import Facts, judge
from changeover_shared._events import (
    Event,
    Message,
    StepCompleted,
    ToolCallEnd,
    TurnCompleted,
    WorkerChanged,
)
from changeover_shared._items import AssistantMessage, ToolCall, ToolResult, UserMessage
from changeover_shared._results import SessionInfo, TranscriptItem, TurnRecord
from changeover_shared._words import Ending, StepEnding, WorkerChange


def result(number: int) -> ToolResult:
    return ToolResult(call_id=f"call_{number}", name="check_region", output="ok")


EVENTS: list[Event] = [
    Message(seq=1, fence=0, text="?"),
    ToolCallEnd(seq=2, fence=1, call_id="call_1", name="check_region", output="ok"),
    ToolCallEnd(seq=3, fence=1, call_id="call_2", name="check_region", output="ok"),
    WorkerChanged(seq=4, fence=2, reason=WorkerChange.TAKEN_OVER, previous="a:1", current="b:1"),
    StepCompleted(seq=8, fence=2, index=1, ending=StepEnding.COMPLETED, removed=((5, 7),)),
    TurnCompleted(seq=9, fence=2, submission_ids=("m",)),
]
ITEMS = (
    UserMessage(text="?"),
    AssistantMessage(tool_calls=(ToolCall(call_id="call_1", name="check_region", arguments="{}"),)),
    result(1),
    result(2),
    AssistantMessage(text="Both regions are healthy."),
)
KEPT = Facts(
    info=SessionInfo(
        session_id="demo:1", agent="demo", queue="demo-1", status="idle", seq=9, fence=2
    ),
    events=EVENTS,
    transcript=[TranscriptItem(n=n, item=item) for n, item in enumerate(ITEMS, 1)],
    turns=[TurnRecord(turn_id="t_1", submission_ids=("m",), ending=Ending.COMPLETED)],
    runs=["eu", "us"],
    late_answer="LOST",
)


@pytest.mark.parametrize("act", ["kill", "freeze"])
def test_a_run_that_kept_its_promises_says_which(act: str) -> None:
    verdict = judge(act, KEPT)  # type: ignore[arg-type]
    assert verdict.broken == ()
    assert verdict.kept.startswith("journal 1..9 without a gap · 1 message, 1 answer")


BREAKS: list[tuple[Callable[[Facts], Facts], str]] = [
    (lambda f: replace(f, events=[*EVENTS[:2], *EVENTS[3:]]), "the journal has a gap: [3]"),
    (
        lambda f: replace(f, events=[*EVENTS[:4], *EVENTS[5:]]),
        "the journal has a gap: [5, 6, 7, 8]",
    ),
    (lambda f: replace(f, events=[EVENTS[0], *EVENTS]), "the journal repeats a number"),
    (lambda f: replace(f, transcript=[*f.transcript, f.transcript[-1]]), "2 answers"),
    (lambda f: replace(f, turns=[*f.turns, *f.turns]), "2 of 2 turns completed"),
    (lambda f: replace(f, turns=[]), "0 of 0 turns completed"),
    (lambda f: replace(f, runs=["eu", "us", "us"]), "check_region ran 3 times"),
    (lambda f: replace(f, info=f.info.model_copy(update={"fence": 3})), "do not rise by one"),
    (
        lambda f: replace(f, events=[*EVENTS[:-1], EVENTS[-1].model_copy(update={"fence": 1})]),
        "do not rise by one",
    ),
    (lambda f: replace(f, late_answer="OK"), "the late write was answered OK, not LOST"),
    (lambda f: replace(f, late_answer="EXPIRED"), "answered EXPIRED, not LOST"),
]


@pytest.mark.parametrize(("spoil", "found"), BREAKS)
def test_each_broken_promise_is_found(spoil: Callable[[Facts], Facts], found: str) -> None:
    broken = judge("freeze", spoil(KEPT)).broken
    assert any(found in wrong for wrong in broken), broken


def test_a_hand_off_is_no_takeover_and_a_takeover_no_hand_off() -> None:
    assert judge("drain", KEPT).broken == ("the worker changed because it was taken_over",)
    handed = EVENTS[3].model_copy(update={"reason": WorkerChange.HANDED_OFF})
    facts = replace(KEPT, events=[*EVENTS[:3], handed, *EVENTS[4:]])
    assert judge("drain", facts).broken == ()
    assert judge("kill", facts).broken == ("the worker changed because it was handed_off",)

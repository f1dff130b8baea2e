"""What people read of a journal."""

from __future__ import annotations

import pytest

from changeover.cli._lines import Lines, call, journal_line
from changeover.cli._output import clock
from changeover.cli._show import transcript_line
from changeover_shared._events import (
    AssistantSaid,
    ContextCompacted,
    ContextRolledBack,
    Delta,
    Event,
    Failure,
    Gap,
    Message,
    SessionConfigured,
    SessionQuarantined,
    StepCompleted,
    ToolCallBegin,
    ToolCallEnd,
    TurnAborted,
    TurnCompleted,
    TurnFailed,
    TurnParked,
    Warned,
    WorkerChanged,
)
from changeover_shared._items import StepRecord
from changeover_shared._results import TranscriptItem
from changeover_shared._words import Effect, StepEnding, WorkerChange


def without_times(events: list[Event]) -> list[str]:
    lines = Lines("agent")
    told = [line for event in events for line in lines.of(event)]
    return [line[10:] if line[2:3] == ":" else line.strip() for line in told]


def begin(call_id: str, arguments: str, at_ms: int = 1000) -> ToolCallBegin:
    return ToolCallBegin(
        call_id=call_id, name="refund", arguments=arguments, effect=Effect.ONCE, at_ms=at_ms
    )


def test_a_conversation_is_told_by_who_speaks() -> None:
    events: list[Event] = [
        Message(text="Please refund"),
        SessionConfigured(agent="support", queue="q"),
        Delta(text="Do"),
        AssistantSaid(text="Done.\nAnything else?"),
        Message(text="No", author="ann"),
    ]
    assert without_times(events) == [
        "you      Please refund",
        "support  Done.",
        "Anything else?",
        "ann      No",
    ]


@pytest.mark.parametrize(
    ("end", "told"),
    [
        (ToolCallEnd(call_id="c", name="refund", output=1, at_ms=1250), "✓ 0.2 s"),
        (
            ToolCallEnd(call_id="c", name="refund", output="no", is_error=True, at_ms=3000),
            "✗ 2.0 s",
        ),
        (
            ToolCallEnd(call_id="c", name="refund", output="?", is_error=True, unknown=True),
            "? it may have run, and is not run again",
        ),
    ],
)
def test_a_tool_call_is_one_line_with_its_end(end: ToolCallEnd, told: str) -> None:
    events: list[Event] = [begin("c", '{"order": "7", "cents": 9000}'), end]
    assert without_times(events) == [f'agent    refund(order="7", cents=9000) {told}']


def test_what_happened_to_the_session_stands_between_rules() -> None:
    events: list[Event] = [
        WorkerChanged(reason=WorkerChange.TAKEN_OVER, previous="d@h:1", current="a@h:2"),
        StepCompleted(index=1, ending=StepEnding.INTERRUPTED),
        TurnAborted(submission_ids=("m",), reason="interrupted"),
        TurnFailed(submission_ids=("m",), error=Failure(kind="provider_auth", message="401")),
        Gap(first=1, last=40),
        Gap(first=39, last=40, reason="rewound"),
    ]
    assert without_times(events) == [
        "── a@h took over (d@h lost its lease) ──",
        "── step 1 was cut off: what it said does not count ──",
        "── interrupted ──",
        "── failed: provider_auth: 401 ──",
        "── events 1 to 40 are not kept any more ──",
        "── events 39 to 40 are lost; their numbers come again ──",
    ]


@pytest.mark.parametrize(
    ("parked", "why"),
    [
        (TurnParked(reason="retry"), "the model failed and is asked again then"),
        (TurnParked(reason="sleep"), "it sleeps"),
        (TurnParked(reason="moonrise"), "moonrise"),
    ],
)
def test_a_parked_turn_says_until_when_it_waits_and_why(parked: TurnParked, why: str) -> None:
    until_ms = 1_700_000_030_000
    assert without_times([parked]) == [f"── waits: {why} ──"]
    timed = parked.model_copy(update={"until_ms": until_ms})
    assert without_times([timed]) == [f"── waits until {clock(until_ms)}: {why} ──"]


def test_what_became_of_the_context_is_one_line() -> None:
    events: list[Event] = [
        ContextCompacted(before_tokens=100_400, after_tokens=21_000),
        ContextRolledBack(to="t_7"),
        ContextRolledBack(to="t_7", tools=('pay({"order": "7"})', "step charge")),
    ]
    left = "── the model is not shown t_7 and what came after it any more"
    assert without_times(events) == [
        "── the older part is a summary from here on: about 100400 tokens became 21000 ──",
        f"{left} ──",
        f'{left}; not undone: pay({{"order": "7"}}), step charge ──',
    ]


def test_a_failed_attempt_at_a_step_is_told_as_one() -> None:
    assert without_times([StepCompleted(index=2, ending=StepEnding.RETRYING)]) == [
        "── step 2 failed: it is asked again, what it said does not count ──"
    ]


@pytest.mark.parametrize(
    ("quarantined", "told"),
    [
        (SessionQuarantined(attempts=5), "quarantined after 5 attempts"),
        (
            SessionQuarantined(attempts=5, error="killed by SIGKILL"),
            "quarantined after 5 attempts: killed by SIGKILL",
        ),
        (SessionQuarantined(cause="worker", error="another way"), "quarantined: another way"),
        (SessionQuarantined(cause="operator", error="too loud"), "quarantined: too loud"),
    ],
)
def test_a_quarantine_says_why_if_that_is_known(quarantined: SessionQuarantined, told: str) -> None:
    (line,) = Lines("bot").of(quarantined)
    assert line.strip() == f"── {told} ──"


def test_a_newer_kind_of_event_is_no_line_but_is_in_the_journal() -> None:
    event = Event.model_validate({"type": "moon_landed", "seq": 7, "fence": 2, "where": "sea"})
    assert without_times([event]) == []
    assert journal_line(event).endswith('f2  moon_landed  {"where":"sea"}')


@pytest.mark.parametrize(
    ("warned", "told"),
    [
        (Warned(code="stale_turn"), "a request to stop a turn came after that turn; the running"),
        (Warned(code="no_agent", text="w has no agent 'x'"), "w has no agent 'x' ──"),
        (Warned(code="moon_landed"), "moon_landed ──"),
    ],
)
def test_a_warning_is_told_in_words_of_its_own_or_by_its_code(warned: Warned, told: str) -> None:
    (line,) = without_times([warned])
    assert line.startswith(f"── warning: {told}")


def test_what_a_turn_returned_is_told_although_it_is_no_text() -> None:
    events: list[Event] = [
        TurnCompleted(submission_ids=("m",), output={"id": 7, "title": "böse"}),
        TurnCompleted(submission_ids=("m",), text="said before", stop="length"),
        TurnCompleted(submission_ids=("m",), text="said before"),
    ]
    assert without_times(events) == [
        'agent    → {"id": 7, "title": "böse"}',
        "── the answer ended early: length ──",
    ]


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (StepRecord(name="charge", output={"id": "é"}), 'step         charge ✓ {"id": "é"}'),
        (StepRecord(name="mail"), "step         mail ✓ null"),
        (StepRecord(name="charge", output="no", is_error=True), 'step         charge ✗ "no"'),
        (StepRecord(name="charge", unknown=True), "step         charge ?"),
        (
            StepRecord(name="model", kind="model", output={"message": {"text": "Hi."}}),
            'model        ✓ "Hi."',
        ),
        (
            StepRecord(name="model", kind="model", output={"message": "401"}, is_error=True),
            'model        ✗ "401"',
        ),
        (StepRecord(name="say", kind="say", output={"text": "Hi."}), 'say          ✓ "Hi."'),
        (StepRecord(name="sleep", kind="sleep"), "sleep        ✓"),
    ],
)
def test_a_handlers_calls_stand_in_its_transcript(step: StepRecord, told: str) -> None:
    assert transcript_line(TranscriptItem(n=7, item=step)) == f"     7  {told}"


def test_control_characters_are_not_passed_on() -> None:
    assert without_times([Message(text="a\x1b[2Jb")]) == ["you      a\N{REPLACEMENT CHARACTER}[2Jb"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ('{"region": "eu"}', 'f("eu")'),
        ('{"a": 1, "b": null}', "f(a=1, b=null)"),
        ("{}", "f()"),
        ('{"cut', 'f({"cut)'),
        ("[1]", "f([1])"),
    ],
)
def test_a_call_is_written_as_people_write_it(arguments: str, told: str) -> None:
    assert call("f", arguments) == told

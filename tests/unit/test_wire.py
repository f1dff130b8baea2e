"""The wire, pinned: what is written is exactly this, and what older writers wrote still parses."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from changeover_shared import _events, _results
from changeover_shared._checkpoint import (
    ActiveStep,
    Checkpoint,
    Execution,
    PendingCall,
    Stats,
    decode_checkpoint,
    encode_checkpoint,
)
from changeover_shared._errors import FormatTooNew
from changeover_shared._events import (
    AssistantSaid,
    ContextCompacted,
    ContextRolledBack,
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
    SessionResumeRequested,
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
    WorkerChanged,
    decode_event,
    ending_of,
)
from changeover_shared._items import (
    AssistantMessage,
    Attachment,
    ToolCall,
    ToolResult,
    TurnStop,
    Usage,
    UserMessage,
    decode_item,
    encode_item,
)
from changeover_shared._ops import (
    CloseOp,
    InterruptOp,
    MessageOp,
    Op,
    SetModelOp,
    class_of,
    decode_op,
    digest,
    encode_op,
)
from changeover_shared._results import (
    Cancelled,
    Draining,
    DrainProgress,
    Evicted,
    Interrupted,
    Outcome,
    Page,
    Pause,
    PayloadKey,
    Purged,
    Quarantined,
    QueueActivity,
    QueueInfo,
    Receipt,
    Redriven,
    Refused,
    Schedule,
    SessionInfo,
    TranscriptItem,
    TurnRecord,
    WorkerInfo,
)
from changeover_shared._words import Effect, Ending, StepEnding, WorkerChange
from tests.support.flat_events import event_of

USAGE = Usage(input_tokens=1, output_tokens=2, cached_input_tokens=3, reasoning_tokens=4)
USAGE_JSON = '{"input_tokens":1,"output_tokens":2,"cached_input_tokens":3,"reasoning_tokens":4}'
NO_USAGE = '{"input_tokens":0,"output_tokens":0,"cached_input_tokens":0,"reasoning_tokens":0}'
FILE = Attachment(url="u", media_type="t", name="n", sha256="h")
FILE_JSON = '{"url":"u","media_type":"t","name":"n","sha256":"h"}'
CALL = ToolCall(call_id="c", name="n", arguments="{}")
CALL_JSON = '{"call_id":"c","name":"n","arguments":"{}"}'

# Ops

OPS: list[tuple[Op, str, str]] = [
    (
        MessageOp(text="hi"),
        (
            '{"type":"message","text":"hi","attachments":[],"author":"user","model":null,'
            '"metadata":null,"budget":null,"reply_to":null}'
        ),
        '{"type":"message","text":"hi"}',
    ),
    (
        MessageOp(text="hi", attachments=(FILE,), author="x", model="m", metadata={"k": 1}),
        (
            f'{{"type":"message","text":"hi","attachments":[{FILE_JSON}],"author":"x","model":"m",'
            '"metadata":{"k":1},"budget":null,"reply_to":null}'
        ),
        (
            '{"type":"message","text":"hi","attachments":[{"url":"u","media_type":"t","name":"n",'
            '"sha256":"h"}],"author":"x","model":"m","metadata":{"k":1}}'
        ),
    ),
    (
        MessageOp(text="hi", reply_to="chat"),
        (
            '{"type":"message","text":"hi","attachments":[],"author":"user","model":null,'
            '"metadata":null,"budget":null,"reply_to":"chat"}'
        ),
        '{"type":"message","text":"hi","reply_to":"chat"}',
    ),
    (SetModelOp(model="m"), '{"type":"set_model","model":"m"}', '{"type":"set_model","model":"m"}'),
    (CloseOp(), '{"type":"close","reason":""}', '{"type":"close"}'),
    (InterruptOp(), '{"type":"interrupt","reason":""}', '{"type":"interrupt"}'),
]

DIGESTS = [
    "3ca816358abb1aec",
    "cb84193431c34c2d",
    "9a9e5a1239d4ff19",
    "0931368064621ba6",
    "faacf33814ec737a",
    "521357baec75c6dd",
]


@pytest.mark.parametrize(("op", "written", "old"), OPS)
def test_an_op_is_written_like_this_and_read_as_older_writers_wrote_it(
    op: Op, written: str, old: str
) -> None:
    assert encode_op(op) == written
    assert decode_op(written) == decode_op(old) == op


def test_an_op_of_a_newer_writer_is_read_without_its_new_fields() -> None:
    assert decode_op('{"type":"close","reason":"r","later":true}') == CloseOp(reason="r")


def test_an_op_of_an_unknown_type_is_not_guessed_at() -> None:
    with pytest.raises(ValidationError):
        decode_op('{"type":"teleport"}')


def test_only_an_interrupt_is_a_control() -> None:
    assert [class_of(op) for op, _, _ in OPS] == ["turn"] * 5 + ["ctl"]


def test_a_digest_names_the_content_of_an_op() -> None:
    """Pinned: during a deploy two releases compare each other's."""
    assert [digest(op) for op, _, _ in OPS] == DIGESTS
    assert len(set(DIGESTS)) == len(DIGESTS)


def test_a_field_that_has_its_default_does_not_change_the_digest() -> None:
    """So a release that adds an optional field knows the ids of the one before."""

    class Later(MessageOp):
        tone: str = "plain"

    assert digest(Later(text="hi")) == digest(MessageOp(text="hi"))
    assert digest(Later(text="hi", tone="dry")) != digest(MessageOp(text="hi"))


# Events: the body that each type adds

EVENTS: list[tuple[Event, str, str]] = [
    (
        SessionConfigured(agent="a", queue="q", model="m"),
        '{"agent":"a","queue":"q","model":"m"}',
        '{"agent":"a","queue":"q"}',
    ),
    (
        ModelChanged(model="m", previous="p", reason="unregistered"),
        '{"model":"m","previous":"p","reason":"unregistered"}',
        '{"model":"m"}',
    ),
    (SessionClosed(reason="r"), '{"reason":"r"}', "{}"),
    (SessionDeleted(reason="r"), '{"reason":"r"}', "{}"),
    (
        ContextCompacted(before_tokens=9, after_tokens=2, usage=Usage(input_tokens=9)),
        '{"before_tokens":9,"after_tokens":2,"usage":{"input_tokens":9}}',
        '{"before_tokens":9,"after_tokens":2}',
    ),
    (ContextRolledBack(to="t_2", tools=("pay",)), '{"to":"t_2","tools":["pay"]}', '{"to":"t_2"}'),
    (
        SessionResumeRequested(target="b", context={"k": "v"}),
        '{"target":"b","context":{"k":"v"}}',
        '{"target":"b"}',
    ),
    (TurnParked(reason="retry", until_ms=7), '{"reason":"retry","until_ms":7}', '{"reason":"r"}'),
    (TurnResumed(reason="retry"), '{"reason":"retry"}', '{"reason":"retry"}'),
    (
        Message(text="hi", attachments=(FILE,), author="x"),
        f'{{"text":"hi","attachments":[{FILE_JSON}],"author":"x"}}',
        '{"text":"hi"}',
    ),
    (TurnStarted(submission_ids=("m1",)), '{"submission_ids":["m1"]}', '{"submission_ids":["m1"]}'),
    (
        TurnCompleted(
            submission_ids=("m1",), text="x", output={"a": 1}, usage=USAGE, stop="length"
        ),
        ('{"submission_ids":["m1"],"text":"x","output":{"a":1},"usage":'
        f'{USAGE_JSON},"stop":"length"}}'),
        '{"submission_ids":["m1"]}',
    ),
    (
        TurnAborted(submission_ids=("m1",), reason="r"),
        '{"submission_ids":["m1"],"reason":"r"}',
        '{"submission_ids":["m1"]}',
    ),
    (
        TurnFailed(
            submission_ids=("m1",), error=Failure(kind="k", message="m", retryable=True)
        ),
        '{"submission_ids":["m1"],"error":{"kind":"k","message":"m","retryable":true}}',
        '{"submission_ids":["m1"],"error":{"kind":"k","message":"m"}}',
    ),
    (StepStarted(index=0, model="m"), '{"index":0,"model":"m"}', '{"index":0,"model":"m"}'),
    (
        Delta(text="t", phase="commentary"),
        '{"phase":"commentary","text":"t"}',
        '{"text":"t"}',
    ),
    (AssistantSaid(text="t"), '{"text":"t"}', '{"text":"t"}'),
    (
        StepCompleted(
            index=0, ending=StepEnding.COMPLETED, usage=USAGE, removed=((1, 2), (5, 5))
        ),
        f'{{"index":0,"ending":"completed","usage":{USAGE_JSON},"removed":[[1,2],[5,5]]}}',
        '{"index":0,"ending":"interrupted"}',
    ),
    (
        ToolCallBegin(call_id="c", name="n", arguments="{}", effect=Effect.ONCE),
        '{"call_id":"c","name":"n","arguments":"{}","effect":"once"}',
        '{"call_id":"c","name":"n","arguments":"{}","effect":"pure"}',
    ),
    (
        ToolCallEnd(call_id="c", name="n", output="o", is_error=True, unknown=True),
        '{"call_id":"c","name":"n","output":"o","is_error":true,"unknown":true}',
        '{"call_id":"c","name":"n","output":null}',
    ),
    (
        WorkerChanged(reason=WorkerChange.EVICTED, previous="p", current="c"),
        '{"reason":"evicted","previous":"p","current":"c"}',
        '{"reason":"handed_off","previous":"p","current":"c"}',
    ),
    (SubmissionMerged(by="m1"), '{"by":"m1"}', '{"by":"m1"}'),
    (SubmissionSuperseded(by="m2"), '{"by":"m2"}', "{}"),
    (SubmissionCancelled(by="c1"), '{"by":"c1"}', "{}"),
    (SubmissionDeadLettered(by="x"), '{"by":"x"}', "{}"),
    (SessionQuarantined(attempts=5), '{"attempts":5}', '{"attempts":5}'),
    (SessionQuarantined(attempts=1, error="e"), '{"attempts":1,"error":"e"}', '{"attempts":1}'),
    (SessionQuarantined(cause="operator", error="e", by="ann", worker="w:1"),
     '{"cause":"operator","error":"e","worker":"w:1","by":"ann"}', "{}"),
    (SessionRedriven(by="ann", dropped=("m1",), ended_turn="t_1"),
     '{"by":"ann","dropped":["m1"],"ended_turn":"t_1"}', "{}"),
    (Warned(code="c", text="t"), '{"code":"c","text":"t"}', '{"code":"c"}'),
    (Gap(first=1, last=2, reason="rewound"), '{"first":1,"last":2,"reason":"rewound"}',
     '{"first":1,"last":2}'),
]  # fmt: skip


def entry(kind: str, body: str) -> tuple[bytes, dict[bytes, bytes]]:
    """A journal entry as Redis holds it."""
    fields = {"type": kind, "at": "5", "fence": "2", "epoch": "1", "sub": "m1", "turn": "t_1",
              "step": "", "body": body}  # fmt: skip
    return b"3-0", {name.encode(): value.encode() for name, value in fields.items()}


def test_every_type_of_event_is_pinned() -> None:
    assert {type(event) for event, _, _ in EVENTS} == set(_events._KNOWN.values())


@pytest.mark.parametrize(("event", "body", "old"), EVENTS, ids=lambda one: getattr(one, "type", ""))
def test_the_body_of_an_event_is_written_and_read_like_this(
    event: Event, body: str, old: str
) -> None:
    assert event.body() == body
    common = {"seq": 3, "at_ms": 5, "fence": 2, "epoch": 1, "submission_id": "m1", "turn_id": "t_1"}
    assert decode_event(*entry(event.type, body)) == event.model_copy(update=common)
    older = decode_event(*entry(event.type, old))
    assert type(older) is type(event)
    newer = json.dumps({**json.loads(body), "later": {"x": 1}})
    assert decode_event(*entry(event.type, newer)) == event.model_copy(update=common)


def test_a_flat_event_is_one_json_object() -> None:
    event = decode_event(*entry("message", '{"text":"hi"}'))
    text = (
        '{"seq":3,"at_ms":5,"fence":2,"epoch":1,"type":"message","submission_id":"m1",'
        '"turn_id":"t_1","text":"hi","attachments":[],"author":"user"}'
    )
    assert event.to_json() == text
    assert event_of(json.loads(text)) == event


def test_an_unknown_type_is_read_as_a_plain_event_with_all_it_carries() -> None:
    event = decode_event(*entry("approval_requested", '{"request_id":"r"}'))
    assert type(event) is Event
    assert (event.type, event.seq) == ("approval_requested", 3)
    assert event.model_extra == {"request_id": "r"}
    assert event_of(json.loads(event.to_json())) == event
    assert event.body() == '{"request_id":"r"}'


def test_events_that_scripts_write_are_events_that_are_known() -> None:
    for kind, body in (
        ("worker_changed", '{"reason":"taken_over","previous":"w1:aa","current":"w2:bb"}'),
        ("session_quarantined", '{"attempts":5}'),
        ("submission_cancelled", '{"by":"c1"}'),
        ("submission_superseded", "{}"),
        ("warning", '{"code":"no_turn"}'),
    ):
        assert type(decode_event(*entry(kind, body))) is not Event, kind


@pytest.mark.parametrize(
    ("event", "ending"),
    [
        (TurnCompleted(submission_ids=("m0", "m1")), Ending.COMPLETED),
        (TurnAborted(submission_ids=("m1",)), Ending.ABORTED),
        (TurnFailed(submission_ids=("m1",), error=Failure(kind="k", message="m")), Ending.FAILED),
        (SubmissionSuperseded(submission_id="m1"), Ending.SUPERSEDED),
        (SubmissionCancelled(submission_id="m1"), Ending.CANCELLED),
        (SubmissionDeadLettered(submission_id="m1"), Ending.DEAD_LETTERED),
        (ModelChanged(model="m", submission_id="m1"), Ending.COMPLETED),
        (SessionClosed(submission_id="m1"), Ending.COMPLETED),
        (TurnStarted(submission_ids=("m1",)), None),
        (TurnCompleted(submission_ids=("m0",)), None),
        (SubmissionCancelled(submission_id="m0"), None),
    ],
)
def test_an_event_says_how_a_submission_ended(event: Event, ending: Ending | None) -> None:
    assert ending_of(event, "m1") == ending


# Items

ITEMS: list[tuple[UserMessage | AssistantMessage | ToolResult, str, str]] = [
    (
        UserMessage(text="hi", submission_id="m1"),
        (
            '{"type":"user","text":"hi","attachments":[],"author":"user","submission_id":"m1",'
            '"reply_to":null}'
        ),
        '{"type":"user","text":"hi","submission_id":"m1"}',
    ),
    (
        AssistantMessage(text="t", tool_calls=(CALL,), opaque=({"provider": "p"},)),
        (
            f'{{"type":"assistant","text":"t","phase":"final_answer","tool_calls":[{CALL_JSON}],'
            '"opaque":[{"provider":"p"}]}'
        ),
        f'{{"type":"assistant","text":"t","tool_calls":[{CALL_JSON}],"opaque":[{{"provider":"p"}}]}}',
    ),
    (
        ToolResult(call_id="c", name="n", output={"a": 1}),
        (
            '{"type":"tool_result","call_id":"c","name":"n","output":{"a":1},"is_error":false,'
            '"unknown":false}'
        ),
        '{"type":"tool_result","call_id":"c","name":"n","output":{"a":1}}',
    ),
]


@pytest.mark.parametrize(("item", "written", "old"), ITEMS)
def test_an_item_is_written_like_this_and_read_as_older_writers_wrote_it(
    item: UserMessage | AssistantMessage | ToolResult, written: str, old: str
) -> None:
    assert encode_item(item) == written
    newer = json.dumps({**json.loads(written), "later": 1})
    assert decode_item(written) == decode_item(old) == decode_item(newer) == item


# Checkpoints

EXECUTION = Execution(
    turn_id="t_1",
    submission_ids=("m1",),
    started_at_ms=1,
    phase="tools",
    next_step=1,
    step=ActiveStep(step_id="s1", index=0, started_at_ms=2),
    assistant=AssistantMessage(tool_calls=(CALL,)),
    calls=(
        PendingCall(
            call_id="c", name="n", arguments="{}", effect=Effect.ONCE,
            result=ToolResult(call_id="c", name="n", output=1),
        ),
    ),
    model_calls=1,
    tool_calls=1,
    usage=USAGE,
)  # fmt: skip
CHECKPOINT = Checkpoint(
    session_id="s", model="m", metadata={"k": 1}, context_epoch=1, context_from=3,
    execution=EXECUTION, stats=Stats(turns=1),
)  # fmt: skip
CHECKPOINT_JSON = (
    '{"version":1,"session_id":"s","model":"m","metadata":{"k":1},"context_epoch":1,'
    '"context_from":3,"execution":{"turn_id":"t_1","submission_ids":["m1"],"started_at_ms":1,'
    '"phase":"tools","next_step":1,"step":{"step_id":"s1","index":0,"started_at_ms":2},'
    f'"assistant":{{"tool_calls":[{CALL_JSON}]}},"calls":[{{"call_id":"c","name":"n",'
    '"arguments":"{}","effect":"once","result":{"call_id":"c","name":"n","output":1}}],'
    f'"model_calls":1,"tool_calls":1,"usage":{USAGE_JSON}}},"stats":{{"turns":1}}}}'
)


def test_a_checkpoint_is_written_like_this_without_its_defaults() -> None:
    assert encode_checkpoint(Checkpoint(session_id="s")) == '{"version":1,"session_id":"s"}'
    assert encode_checkpoint(CHECKPOINT) == CHECKPOINT_JSON
    assert decode_checkpoint(CHECKPOINT_JSON, session_id="s") == CHECKPOINT


def test_a_call_that_ends_its_turn_says_so_in_the_checkpoint_and_not_in_the_transcript() -> None:
    stop = TurnStop(kind="k", message="m")
    result = ToolResult(call_id="c", name="n", output=1, stop=stop)
    call = PendingCall(
        call_id="c", name="n", arguments="{}", effect=Effect.ONCE, terminal=True, stop=stop
    )
    body = (
        '{"call_id":"c","name":"n","arguments":"{}","effect":"once","terminal":true,'
        '"stop":{"kind":"k","message":"m"}}'
    )
    assert call.model_dump_json(exclude_defaults=True) == body
    assert PendingCall.model_validate_json(body) == call
    assert encode_item(result) == encode_item(result.model_copy(update={"stop": None}))


def test_a_checkpoint_of_a_newer_writer_of_the_same_format_is_read() -> None:
    newer = json.dumps({**json.loads(CHECKPOINT_JSON), "later": 1})
    assert decode_checkpoint(newer, session_id="s") == CHECKPOINT


def test_a_checkpoint_of_another_format_is_refused_by_name() -> None:
    with pytest.raises(FormatTooNew, match="session 's' has format 2"):
        decode_checkpoint('{"version":2,"session_id":"s"}', session_id="s")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('{"version":1,"session_id":"other"}', "does not match"),
        ("not json", "is damaged"),
        ('{"version":1}', "is damaged"),
        ('{"version":1,"session_id":"s","context_from":0}', "is damaged"),
        (
            CHECKPOINT_JSON.replace('"submission_ids":["m1"]', '"submission_ids":[]'),
            "identifiers cannot be empty",
        ),
        (CHECKPOINT_JSON.replace('"tool_calls":1', '"failed_tool_calls":2'), "exceeds tool count"),
        (CHECKPOINT_JSON.replace('"started_at_ms":2', '"started_at_ms":0'), "predates"),
    ],
)
def test_a_checkpoint_that_cannot_be_trusted_is_not_read(body: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        decode_checkpoint(body, session_id="s")


# Results

RECEIPT = Receipt(session_id="s", submission_id="m", answer="accepted")
RESULTS: list[tuple[Any, str, str]] = [
    (
        RECEIPT,
        ('{"session_id":"s","submission_id":"m","answer":"accepted","position":0,"seq":0,'
        '"replaced":[]}'),
        '{"session_id":"s","submission_id":"m","answer":"accepted"}',
    ),
    (
        Refused(session_id="s", submission_id="m", code="busy", text="t", retry_after_ms=1),
        '{"session_id":"s","submission_id":"m","code":"busy","text":"t","retry_after_ms":1}',
        '{"session_id":"s","submission_id":"m","code":"busy","text":"t","retry_after_ms":1}',
    ),
    (
        TurnRecord(turn_id="t_1", submission_ids=("m",), ending=Ending.COMPLETED),
        ('{"turn_id":"t_1","submission_ids":["m"],"ending":"completed","reply_to":[],"text":"","output":null,'
            '"stop":null,'
        f'"error":null,"usage":{NO_USAGE},"steps":0,"tool_calls":0,"failed_tool_calls":0,'
        '"takeovers":0,"model":null,"first_item":0,"last_item":0,"started_at_ms":0,"finished_at_ms":0}'),
        '{"turn_id":"t_1","submission_ids":["m"],"ending":"completed"}',
    ),
    (
        Outcome(
            session_id="s", submission_id="m", ending=Ending.FAILED,
            error=Failure(kind="k", message="m"),
        ),
        ('{"session_id":"s","submission_id":"m","ending":"failed","turn_id":null,"reply_to":[],"text":"",'
        '"output":null,"stop":null,"error":{"kind":"k","message":"m","retryable":false,'
        '"retry_after_ms":null},'
        f'"usage":{NO_USAGE},"steps":0,"tool_calls":0,"takeovers":0,"started_at_ms":0,'
        '"finished_at_ms":0}'),
        ('{"session_id":"s","submission_id":"m","ending":"failed","error":{"kind":"k",'
        '"message":"m"}}'),
    ),
    (
        Interrupted(session_id="s", answer="accepted", turn_id="t_1", submission_id="i"),
        ('{"session_id":"s","answer":"accepted","turn_id":"t_1","submission_id":"i",'
        '"quarantined":false}'),
        '{"session_id":"s","answer":"accepted","turn_id":"t_1","submission_id":"i"}',
    ),
    (
        Cancelled(session_id="s", submission_id="m", answer="cancelled"),
        ('{"session_id":"s","submission_id":"m","answer":"cancelled","turn_id":null,'
        '"ending":null,"quarantined":false}'),
        '{"session_id":"s","submission_id":"m","answer":"cancelled"}',
    ),
    (
        SessionInfo(session_id="s", agent="a", queue="q", status="idle"),
        ('{"session_id":"s","agent":"a","queue":"q","status":"idle","tenant":null,"worker":null,'
        '"model":null,"turn_id":null,"seq":0,"first_seq":1,"revision":0,"fence":0,"inbox":0,'
        f'"waiting":null,"stopped":null,"usage":{NO_USAGE},"context":{{}},"metadata":{{}},"parent":null,'
        '"created_at_ms":0,"updated_at_ms":0}'),
        '{"session_id":"s","agent":"a","queue":"q","status":"idle"}',
    ),
    (
        TranscriptItem(n=1, item=UserMessage(text="hi")),
        ('{"n":1,"item":{"type":"user","text":"hi","attachments":[],"author":"user",'
        '"submission_id":null,"reply_to":null}}'),
        '{"n":1,"item":{"type":"user","text":"hi"}}',
    ),
    (
        Page[Receipt](items=(RECEIPT,), next="c"),
        ('{"items":[{"session_id":"s","submission_id":"m","answer":"accepted","position":0,'
        '"seq":0,"replaced":[]}],"next":"c"}'),
        '{"items":[{"session_id":"s","submission_id":"m","answer":"accepted"}],"next":"c"}',
    ),
    (
        Purged(sessions=("s",), tombstones=1, receipts=2),
        '{"sessions":["s"],"tombstones":1,"receipts":2,"trimmed":0}',
        '{"sessions":["s"],"tombstones":1,"receipts":2}',
    ),
    (
        Quarantined(session_id="s", agent="a", queue="q"),
        ('{"session_id":"s","agent":"a","queue":"q","tenant":null,"since_ms":0,"attempts":0,'
        '"cause":"attempts","error":null,"by":null,"worker":null,"doing":null,"turn_id":null,'
        '"submission_ids":[],"inbox":0,"why":""}'),
        '{"session_id":"s","agent":"a","queue":"q"}',
    ),
    (
        Redriven(session_id="s", answer="redriven", status="ready", dropped=("m",)),
        ('{"session_id":"s","answer":"redriven","status":"ready","dropped":["m"],'
        '"ended_turn":null,"error":null}'),
        '{"session_id":"s","answer":"redriven","status":"ready","dropped":["m"]}',
    ),
    (
        PayloadKey(key_id="0a", values=3, sessions=1),
        '{"key_id":"0a","values":3,"sessions":1}',
        '{"key_id":"0a","values":3,"sessions":1}',
    ),
    (
        Pause(by="ops", reason="outage", since_ms=1),
        '{"by":"ops","reason":"outage","since_ms":1}',
        '{"by":"ops","reason":"outage","since_ms":1}',
    ),
    (
        QueueInfo(queue="q"),
        ('{"queue":"q","state":"open","ready":0,"oldest_ms":null,"running":0,"parked":0,'
        '"quarantined":0,"workers":0,"turns_per_minute":0,"paused":null}'),
        '{"queue":"q"}',
    ),
    (
        Schedule(name="n", session_id="s", due_at_ms=7),
        ('{"name":"n","session_id":"s","due_at_ms":7,"text":null,"agent":null,"queue":null,'
        '"cron":null,"tz":null,"every_ms":null,"missed":null,"policy":null,"priority":0}'),
        '{"name":"n","session_id":"s","due_at_ms":7}',
    ),
    (
        QueueActivity(),
        ('{"sessions":0,"claims":0,"takeovers":0,"turns":0,"recent_claims":0,'
        '"recent_takeovers":0,"recent_turns":0}'),
        "{}",
    ),
    (
        WorkerInfo(worker="w", incarnation="w:1"),
        ('{"worker":"w","incarnation":"w:1","build":"","host":"","pid":0,"state":"running",'
        '"queues":[],"agents":[],"slots":0,"sessions":0,"started_at_ms":0,"renewed_at_ms":0,'
        '"activity":{},"recent_ms":0,"draining":null,"sees_connections":true}'),
        '{"worker":"w","incarnation":"w:1"}',
    ),
    (
        Draining(sessions=17, left=3, grace_ms=25_000, since_ms=1),
        '{"sessions":17,"left":3,"forced":0,"grace_ms":25000,"since_ms":1}',
        '{"sessions":17,"left":3,"grace_ms":25000,"since_ms":1}',
    ),
    (
        DrainProgress(worker="w", incarnation="w:1", state="drained", sessions=2, handed_off=2),
        ('{"worker":"w","incarnation":"w:1","state":"drained","sessions":2,"handed_off":2,'
        '"forced":0,"grace_ms":0,"took_ms":0}'),
        ('{"worker":"w","incarnation":"w:1","state":"drained","sessions":2,"handed_off":2}'),
    ),
    (
        Evicted(worker="w", incarnation="w:1", sessions=3),
        '{"worker":"w","incarnation":"w:1","sessions":3}',
        '{"worker":"w","incarnation":"w:1","sessions":3}',
    ),
]  # fmt: skip


def test_every_result_is_pinned() -> None:
    kinds = {
        value
        for value in vars(_results).values()
        if isinstance(value, type)
        and issubclass(value, BaseModel)
        and value.__module__ == _results.__name__
    }
    assert {type(result) for result, _, _ in RESULTS} - {Page[Receipt]} | {Page} == kinds


@pytest.mark.parametrize(("result", "written", "old"), RESULTS)
def test_a_result_is_written_like_this_and_read_as_older_writers_wrote_it(
    result: BaseModel, written: str, old: str
) -> None:
    kind = type(result)
    assert result.model_dump_json() == written
    newer = json.dumps({**json.loads(written), "later": 1})
    for text in (written, old, newer):
        assert kind.model_validate_json(text) == result


def test_usage_adds_up() -> None:
    assert (
        Usage(input_tokens=2, output_tokens=4, cached_input_tokens=6, reasoning_tokens=8)
        == USAGE + USAGE
    )
    assert USAGE.total_tokens == 3

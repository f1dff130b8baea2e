"""Counts have a range: what cannot be counted changes nothing, and what is damaged is not read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from changeover_shared._checkpoint import (
    ActiveStep,
    Checkpoint,
    Execution,
    PendingCall,
    Stats,
    decode_checkpoint,
    encode_checkpoint,
)
from changeover_shared._events import Failure, TurnAborted
from changeover_shared._items import MAX_COUNT, AssistantMessage, ToolCall, Usage
from changeover_shared._ops import MessageOp, SetModelOp
from changeover_shared._results import TurnRecord
from changeover_shared._words import Effect, Ending, StepEnding
from changeover_worker._models.answer import number
from changeover_worker._turn.budget import Limits
from changeover_worker._turn.draft import Onward, Setup, Taken
from changeover_worker._turn.ending import CounterOverflow, abort, complete, fail
from changeover_worker._turn.recovery import recover
from changeover_worker._turn.start import start

DONE = AssistantMessage(text="done")


def active(**given: Any) -> Checkpoint:
    """A session whose turn has its answer: 2 model calls, 3 tool calls, 1 of them failed."""
    execution = Execution(
        turn_id="t_1",
        submission_ids=("m1",),
        started_at_ms=0,
        phase="completion",
        next_step=4,
        assistant=DONE,
        model_calls=2,
        tool_calls=3,
        failed_tool_calls=1,
        usage=Usage(input_tokens=7),
    )
    return Checkpoint(session_id="s", execution=execution, stats=Stats(**given))


FULL = (
    {"turns": MAX_COUNT},
    {"model_calls": MAX_COUNT - 1},
    {"tool_calls": MAX_COUNT - 2},
    {"tool_calls": MAX_COUNT - 3, "failed_tool_calls": MAX_COUNT - 3, "turns": MAX_COUNT},
    {"elapsed_ms": 1},
    {"usage": Usage(input_tokens=MAX_COUNT - 6)},
)


@pytest.mark.parametrize("stats", FULL)
def test_an_end_that_cannot_be_counted_is_refused_and_changes_nothing(stats: Any) -> None:
    """Case 001-23: whichever count would overflow, turn and statistics stay as they were.
    Difference: counts end at 2**53 - 1, which every reader of JSON and Lua hold exactly, not at
    2**64 - 1, and times begin at 0.
    """
    checkpoint = active(**stats)
    before = encode_checkpoint(checkpoint)
    with pytest.raises(CounterOverflow, match=r"exceed the supported range.*nothing was changed"):
        complete(checkpoint, DONE, now_ms=MAX_COUNT)
    with pytest.raises(CounterOverflow):
        abort(checkpoint, "stopped", now_ms=MAX_COUNT)
    with pytest.raises(CounterOverflow):
        fail(checkpoint, Failure(kind="x", message="x"), now_ms=MAX_COUNT)
    assert encode_checkpoint(checkpoint) == before


def test_the_same_end_is_counted_when_there_is_room() -> None:
    """Case 001-23: the turn is closed, its time is exact to the last millisecond, and it is the
    first."""
    draft = complete(active(), DONE, now_ms=MAX_COUNT)
    assert draft.checkpoint.execution is None
    assert draft.checkpoint.stats == Stats(
        turns=1,
        model_calls=2,
        tool_calls=3,
        failed_tool_calls=1,
        elapsed_ms=MAX_COUNT,
        usage=Usage(input_tokens=7),
    )
    assert draft.record is not None and draft.record.ending is Ending.COMPLETED


def test_a_clock_that_is_behind_makes_no_end_before_the_beginning() -> None:
    """Case 000-10: a turn that began at 10 and a step that began at 20 end at 20, however far
    behind the successor's clock is."""
    execution = Execution(
        turn_id="turn-1",
        submission_ids=("submission-1",),
        started_at_ms=10,
        model_calls=1,
        step=ActiveStep(step_id="step-1", index=0, started_at_ms=20),
    )
    draft = recover(
        Checkpoint(session_id="s", model="m", execution=execution),
        on_takeover="abort",
        onward=Onward(step_id="step-2", model="m", limits=Limits(9)),
        now_ms=5,
        takeover=True,
    )
    assert draft is not None and draft.record is not None
    step, turn = draft.events
    assert (step.type, step.step_id) == ("step_completed", "step-1")
    assert getattr(step, "ending", None) is StepEnding.INTERRUPTED
    assert isinstance(turn, TurnAborted)
    assert (turn.turn_id, turn.reason) == ("turn-1", "interrupted by restart")
    assert draft.checkpoint.execution is None
    assert (draft.record.started_at_ms, draft.record.finished_at_ms) == (10, 20)
    assert draft.checkpoint.stats.elapsed_ms == 10


def test_a_turn_of_no_time_takes_none() -> None:
    draft = complete(active(), DONE, now_ms=0)
    assert draft.checkpoint.stats.elapsed_ms == 0


def test_a_message_to_a_session_that_cannot_count_it_ends_as_failed_without_a_turn() -> None:
    """Else its worker would ask a model for an answer that cannot be stored."""
    full = Checkpoint(session_id="s", model="m", stats=Stats(turns=MAX_COUNT))
    setup = Setup(agent="bot", queue="bot", model="m", models=("m", "n"))

    def begun(op: Any) -> Any:
        return start(
            full, Taken(1, "m1", op), setup, turn_id="t_1", step_id="s", first_item=1, now_ms=1
        )

    draft = begun(MessageOp(text="x"))
    assert (draft.end, draft.take, draft.checkpoint) == (Ending.FAILED, (1,), full)
    assert draft.record.error.kind == "counters_full"
    assert begun(SetModelOp(model="n")).end is Ending.COMPLETED


@pytest.mark.parametrize(
    "stats",
    [
        {"turns": MAX_COUNT + 1},
        {"turns": -1},
        {"turns": 1, "failed_turns": 1, "aborted_turns": 1},
        {"tool_calls": 1, "failed_tool_calls": 2},
        {"usage": {"input_tokens": MAX_COUNT + 1}},
    ],
)
def test_statistics_out_of_range_are_not_restored(stats: Any) -> None:
    """Case 001-23: what is stored is checked as what is counted."""
    with pytest.raises(ValidationError):
        Stats.model_validate(stats)


@pytest.mark.parametrize(
    "execution",
    [
        {"started_at_ms": -1},
        {"started_at_ms": MAX_COUNT + 1},
        {"tool_calls": 1, "failed_tool_calls": 2},
        {"usage": {"output_tokens": -1}},
        {"step": {"step_id": "x", "index": 0, "started_at_ms": 9}},
    ],
)
def test_a_checkpoint_with_counts_out_of_range_is_damaged(execution: Any) -> None:
    body = {"turn_id": "t_1", "submission_ids": ["m"], "started_at_ms": 10, **execution}
    whole = Checkpoint(session_id="s").model_dump(mode="json") | {"execution": body}
    with pytest.raises(ValueError, match="checkpoint of 's' is damaged"):
        decode_checkpoint(json.dumps(whole), session_id="s")


def test_adding_usage_for_people_never_fails() -> None:
    full, more = Usage(input_tokens=MAX_COUNT, output_tokens=1), Usage(input_tokens=1)
    assert full + more == Usage(input_tokens=MAX_COUNT, output_tokens=1)
    assert more + more == Usage(input_tokens=2)


@pytest.mark.parametrize("value", [2**50, 10**40, -1, "7", None])
def test_a_count_of_tokens_that_a_server_made_up_is_none(value: Any) -> None:
    assert number({"tokens": value}, "tokens") == 0
    assert number({"tokens": 2**50 - 1}, "tokens") == 2**50 - 1


def test_the_largest_counts_survive_a_checkpoint() -> None:
    call = PendingCall(call_id="c", name="n", arguments="{}", effect=Effect.PURE)
    message = AssistantMessage(tool_calls=(ToolCall(call_id="c", name="n", arguments="{}"),))
    execution = active().execution
    assert execution is not None
    busy = execution.model_copy(update={"calls": (call,), "assistant": message})
    checkpoint = Checkpoint(
        session_id="s",
        execution=busy,
        stats=Stats(turns=MAX_COUNT, usage=Usage(output_tokens=MAX_COUNT)),
    )
    assert decode_checkpoint(encode_checkpoint(checkpoint), session_id="s") == checkpoint


@pytest.mark.parametrize(
    "record",
    [
        {"started_at_ms": 2, "finished_at_ms": 1},
        {"tool_calls": 1, "failed_tool_calls": 2},
        {"steps": -1},
        {"usage": {"input_tokens": MAX_COUNT + 1}},
    ],
)
def test_a_record_out_of_range_is_neither_written_nor_read(record: Any) -> None:
    """Case 001-23: the record of a turn is checked like the statistics."""
    whole = {"turn_id": "t_1", "submission_ids": ["m"], "ending": "completed"}
    TurnRecord.model_validate(whole)
    with pytest.raises(ValidationError):
        TurnRecord.model_validate(whole | record)

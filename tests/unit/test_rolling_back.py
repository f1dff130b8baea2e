"""Rollbacks, pure: what they leave out, what they tell, and what they refuse."""

from __future__ import annotations

import json

import pytest

from changeover_shared._checkpoint import Checkpoint, Execution, LeftOut
from changeover_shared._items import (
    AnyItem,
    AssistantMessage,
    StepRecord,
    ToolCall,
    ToolResult,
)
from changeover_shared._results import TurnRecord
from changeover_shared._words import Ending
from changeover_worker._turn.context import (
    decode_prefix,
    entries,
    flaw,
)
from changeover_worker._turn.ending import abort
from changeover_worker._turn.rolling_back import (
    NAMED,
    Past,
    aborted_without,
    calls_of,
    rolled_back,
    without,
)
from tests.support.conversing import asks, got, one_turn, says, user


def record(first: int, last: int, turn: str = "t_2") -> TurnRecord:
    return TurnRecord(
        turn_id=turn,
        submission_ids=("m",),
        ending=Ending.COMPLETED,
        first_item=first,
        last_item=last,
    )


CONVERSATION: list[AnyItem] = [
    *one_turn("one"),
    user("two"),
    asks("a"),
    got("a"),
    says(),
    user("3"),
]


def test_a_rollback_leaves_a_turn_and_all_later_ones_out_and_names_what_ran() -> None:
    """Hole 53: the model is told of what it might do again."""
    before = Checkpoint(session_id="s")
    result = rolled_back(before, "t_2", Past(record(3, 6), CONVERSATION))
    assert isinstance(result, tuple)
    checkpoint, event = result
    assert (event.to, event.tools) == ("t_2", ('tool_a({"a": 1})',))
    (left_out,) = checkpoint.left_out
    assert (left_out.first, left_out.last) == (3, 7)
    assert left_out.note.endswith('\n- tool_a({"a": 1})]')
    shown = [e.item for e in entries((), CONVERSATION, 1, checkpoint.left_out)]
    assert shown[:2] == CONVERSATION[:2]
    assert flaw(shown) == ""
    assert len(shown) == 3


def test_a_rollback_of_a_turn_without_calls_leaves_no_note() -> None:
    result = rolled_back(Checkpoint(session_id="s"), "t_1", Past(record(1, 2), CONVERSATION[:2]))
    assert isinstance(result, tuple)
    assert result[0].left_out == (LeftOut(first=1, last=2),)


def test_rollbacks_that_border_on_each_other_become_one() -> None:
    checkpoint = without(Checkpoint(session_id="s"), CONVERSATION, 3, 6)
    checkpoint = without(checkpoint, CONVERSATION, 7, 7)
    (left_out,) = checkpoint.left_out
    assert (left_out.first, left_out.last) == (3, 7)
    assert "tool_a" in left_out.note
    (whole,) = without(checkpoint, CONVERSATION, 1, 7).left_out
    assert (whole.first, whole.last) == (1, 7)
    assert whole.note == left_out.note


@pytest.mark.parametrize(
    ("past", "kind"),
    [
        (Past(), "unknown_turn"),
        (Past(record(2, 3), CONVERSATION), "compacted"),
        (Past(record(5, 6), CONVERSATION), "rolled_back"),
    ],
)
def test_a_rollback_that_cannot_be_is_told_and_changes_nothing(past: Past, kind: str) -> None:
    checkpoint = Checkpoint(
        session_id="s", context_epoch=1, context_from=3, left_out=(LeftOut(first=5, last=6),)
    )
    failure = rolled_back(checkpoint, "t_2", past)
    assert not isinstance(failure, tuple)
    assert failure.kind == kind
    assert "the context was left as it is" in failure.message


def test_the_note_says_which_calls_failed_and_which_may_have_run() -> None:
    items: list[AnyItem] = [asks("a", "b", "c"), got("a", is_error=True)]
    items += [got("b", is_error=True, unknown=True), StepRecord(name="charge"), got("c")]
    items += [ToolResult(call_id="r", name="read_result", output="page")]
    assert calls_of(items) == [
        'tool_a({"a": 1}): failed',
        'tool_b({"a": 1}): may have run',
        "step charge",
        'tool_c({"a": 1})',
    ]


def test_a_note_is_bounded() -> None:
    ids = [str(n) for n in range(NAMED + 7)]
    items: list[AnyItem] = [asks(*ids), *(got(i) for i in ids)]
    (left_out,) = without(Checkpoint(session_id="s"), items, 1, len(items)).left_out
    assert "- 7 earlier ones\n" in left_out.note
    assert left_out.note.count("tool_") == NAMED
    long = ToolCall(call_id="x", name="t", arguments=json.dumps("y" * 9000))
    (line,) = calls_of([AssistantMessage(tool_calls=(long,)), got("x")])
    assert len(line) < 230


def open_turn(first_item: int, **given: object) -> Checkpoint:
    execution = Execution(
        turn_id="t_2", submission_ids=("m2",), started_at_ms=1, first_item=first_item
    )
    return Checkpoint.model_validate({"session_id": "s", "execution": execution, **given})


def test_an_abort_with_a_rollback_takes_its_own_turn_out() -> None:
    items: list[AnyItem] = [*one_turn("one"), user("two", "m2"), asks("a"), got("a")]
    before = open_turn(3)
    draft = aborted_without(abort(before, "why", now_ms=2), before, (), items)
    assert [event.type for event in draft.events] == ["context_rolled_back", "turn_aborted"]
    (left_out,) = draft.checkpoint.left_out
    assert (left_out.first, left_out.last) == (3, 5)
    assert "tool_a" in left_out.note
    assert draft.prefix == ""


def test_an_abort_with_a_rollback_takes_its_question_out_of_a_rewritten_beginning_too() -> None:
    prefix = (user("summary"), user("two", "m2"))
    items: list[AnyItem] = [asks("a"), got("a")]
    before = open_turn(3, context_epoch=4, context_from=6)
    draft = aborted_without(abort(before, "why", now_ms=2), before, prefix, items)
    assert decode_prefix(draft.prefix) == (user("summary"),)
    assert (draft.checkpoint.context_epoch, draft.checkpoint.context_from) == (5, 6)
    assert [(r.first, r.last) for r in draft.checkpoint.left_out] == [(6, 7)]


def test_an_abort_with_a_rollback_of_a_turn_without_items_leaves_nothing_out() -> None:
    before = open_turn(3)
    draft = aborted_without(abort(before, "why", now_ms=2), before, (), one_turn("one"))
    assert draft.checkpoint.left_out == ()

"""What a model is shown: a projection of the transcript that is valid whatever is stored."""

from __future__ import annotations

import pytest

from changeover_shared._checkpoint import LeftOut
from changeover_shared._items import (
    AnyItem,
    Item,
    StepRecord,
    ToolResult,
    UserMessage,
)
from changeover_worker._turn.context import (
    LOST_BEGINNING,
    LOST_RESULT,
    decode_prefix,
    encode_prefix,
    entries,
    flaw,
    mended,
)
from tests.support.conversing import asks, got, one_turn, says, user


@pytest.mark.parametrize(
    ("items", "what"),
    [
        ([], "does not begin"),
        ([says()], "does not begin"),
        ([user(), got("a")], "does not follow its call"),
        ([user(), asks("a")], "'a' has no result"),
        ([user(), asks("a"), user()], "'a' has no result"),
        ([user(), asks("a", "b"), got("b"), got("a")], "'b' does not follow"),
        ([user(), asks("a", "b"), got("a")], "'b' has no result"),
        ([user(), asks("a"), got("a"), got("a")], "does not follow"),
    ],
)
def test_a_context_that_is_not_valid_is_told_and_mended(items: list[Item], what: str) -> None:
    assert what in flaw(items)
    assert flaw(mended(items)) == ""


def test_a_valid_context_is_left_as_it_is() -> None:
    items: list[Item] = [user(), asks("a", "b"), got("a"), got("b"), says(), user("again")]
    assert flaw(items) == ""
    assert mended(items) == tuple(items)


def test_mending_keeps_what_can_be_kept_and_says_what_is_lost() -> None:
    items: list[Item] = [asks("a", "b"), got("b", "kept"), got("x"), user("more"), got("y")]
    start, call, lost, kept, more = mended(items)
    assert isinstance(start, UserMessage)
    assert start.text == LOST_BEGINNING
    assert isinstance(lost, ToolResult)
    assert (lost.call_id, lost.output, lost.is_error, lost.unknown) == (
        "a",
        LOST_RESULT,
        True,
        True,
    )
    assert (call, kept, more) == (items[0], items[1], items[3])


def test_the_records_of_a_handlers_steps_are_shown_to_no_model() -> None:
    items: list[AnyItem] = [user(), StepRecord(name="charge"), says()]
    assert [entry.n for entry in entries((), items, 4, ())] == [4, 6]


def test_what_is_left_out_is_hidden_and_its_note_stands_in_its_place() -> None:
    items: list[AnyItem] = [*one_turn("one"), *one_turn("two"), *one_turn("three")]
    left_out = (LeftOut(first=3, last=4, note="[two was taken back]"),)
    found = entries((user("prefix"),), items, 1, left_out)
    texts = [entry.item.text for entry in found if not isinstance(entry.item, ToolResult)]
    assert texts == ["prefix", "one", "ok", "[two was taken back]", "three", "ok"]
    assert [entry.n for entry in found] == [0, 1, 2, 3, 5, 6]
    without_note = entries((), items, 1, (LeftOut(first=1, last=4),))
    assert [entry.n for entry in without_note] == [5, 6]


def test_a_prefix_is_read_back_as_it_was_written() -> None:
    items = (user("é"), asks("a"), got("a", {"x": [1]}))
    assert decode_prefix(encode_prefix(items)) == items
    for damaged in (None, "", "{", '[{"type": "unheard_of"}]'):
        with pytest.raises(ValueError, match=r"missing|error"):
            decode_prefix(damaged)

"""Compaction, pure: what it comes to, where it is cut, and what a summary becomes."""

from __future__ import annotations

import pytest

from changeover_shared._checkpoint import Checkpoint, LeftOut
from changeover_shared._errors import Invalid
from changeover_shared._items import (
    Item,
    UserMessage,
)
from changeover_worker import Compaction
from changeover_worker._models.model import ModelResponse
from changeover_worker._turn.context import (
    Entry,
    flaw,
)
from changeover_worker._turn.rewriting import (
    LARGE,
    SUMMARY,
    Cut,
    chars,
    cut,
    rewritten,
    summarised,
    tokens,
)
from tests.support.conversing import asks, got, numbered, one_turn, said, says, user


def test_a_token_is_estimated_at_four_characters() -> None:
    assert tokens([user("x" * 8), says("x" * 4)]) == 3
    call = asks("a", text="12345678")
    assert chars(call) == 8 + len("tool_a") + len('{"a": 1}')
    assert chars(got("a", {"k": 1})) == len("tool_a") + len('{"k": 1}')


def test_the_newest_turns_that_fit_are_kept() -> None:
    context = numbered(*one_turn("1", size=400), *one_turn("2", size=400), *one_turn("3", size=400))
    place = cut(context, keep_tokens=210, own=(), end=7)
    assert place is not None
    assert (place.first, place.own) == (3, ())
    assert [entry.n for entry in place.older] == [1, 2]
    smaller = cut(context, keep_tokens=110, own=(), end=7)
    assert smaller is not None
    assert smaller.first == 5


def test_a_last_turn_that_is_too_large_is_summarised_with_the_rest() -> None:
    context = numbered(*one_turn("1"), *one_turn("2", size=4000))
    place = cut(context, keep_tokens=100, own=(), end=5)
    assert place is not None
    assert place.first == 5


def test_nothing_is_cut_when_all_of_it_may_stay() -> None:
    assert cut(numbered(*one_turn("1"), *one_turn("2")), keep_tokens=100, own=(), end=5) is None
    assert cut((), keep_tokens=100, own=(), end=1) is None
    alone = numbered(user("x" * 4000, "m1"))
    assert cut(alone, keep_tokens=100, own=("m1",), end=2) is None


def test_a_summary_alone_is_not_summarised_again() -> None:
    context = (Entry(0, user("summary " * 100)), *numbered(user("x" * 4000, "m2"), first=9))
    assert cut(context, keep_tokens=10, own=("m2",), end=10) is None


def test_a_call_is_never_parted_from_its_results() -> None:
    group: list[Item] = [asks("a", "b"), got("a", "x" * 400), got("b", "x" * 400)]
    context = numbered(user("q", "m1"), *group, *group, *group)
    for keep in range(0, 1000, 25):
        place = cut(context, keep_tokens=keep, own=("m1",), end=11)
        if place is None:
            assert keep >= 600
            continue
        assert place.first in (5, 8)
        rest = [e.item for e in context if e.n >= place.first]
        assert flaw([user("summary"), *place.own, *rest]) == ""


def test_one_turn_over_the_budget_is_cut_inside_and_its_question_stays_word_for_word() -> None:
    group: list[Item] = [asks("a"), got("a", "x" * 4000)]
    context = numbered(*one_turn("before"), user("the question", "m2"), *group, *group)
    place = cut(context, keep_tokens=1100, own=("m2",), end=8)
    assert place is not None
    assert [message.text for message in place.own] == ["the question"]
    assert [entry.n for entry in place.older] == [1, 2, 4, 5]
    assert place.first == 6
    # With no step that fits, the newest step stays all the same: the model has to see it.
    tight = cut(context, keep_tokens=10, own=("m2",), end=8)
    assert tight is not None
    assert tight.first == 6


def test_the_question_stays_through_a_second_cut_in_the_same_turn() -> None:
    prefix = (Entry(0, user("summary")), Entry(0, user("the question", "m2")))
    group: list[Item] = [asks("a"), got("a", "x" * 4000)]
    place = cut((*prefix, *numbered(*group, *group, first=6)), keep_tokens=9, own=("m2",), end=10)
    assert place is not None
    assert [message.text for message in place.own] == ["the question"]
    assert [entry.n for entry in place.older] == [0, 6, 7]
    assert place.first == 8


def test_a_summary_becomes_one_message_that_says_what_it_is() -> None:
    place = Cut(numbered(user("x" * 4000), says()), (user("open", "m2"),), 3)
    prefix = summarised(place, ModelResponse(says("  They talked. ")), {})
    assert isinstance(prefix, tuple)
    summary, own = prefix
    assert isinstance(summary, UserMessage)
    assert (summary.author, own) == ("changeover", user("open", "m2"))
    assert summary.text == f"{SUMMARY}\n\nThey talked."


@pytest.mark.parametrize(
    ("response", "why"),
    [
        (ModelResponse(says(" \n ")), "it is blank"),
        (ModelResponse(says("x"), stop="length"), "it ended early: length"),
        (ModelResponse(says("x"), stop="refusal"), "it ended early: refusal"),
        (ModelResponse(says("x" * 5000)), "it is larger than what it would replace"),
    ],
)
def test_a_summary_of_no_use_is_refused(response: ModelResponse, why: str) -> None:
    place = Cut(numbered(user("x" * 4000)), (), 2)
    failure = summarised(place, response, {})
    assert not isinstance(failure, tuple)
    assert failure.kind == "summary_unusable"
    assert why in failure.message


def test_large_results_stay_named_through_several_summaries() -> None:
    first = user(f"{SUMMARY}\n\nOnce.\n\n{LARGE}\n- old: read_result(item=2, page=1) reads 1 of 9")
    big = got("a", "x" * 70_000)
    older = (Entry(0, first), *numbered(user("q"), asks("a"), big, first=10))
    prefix = summarised(Cut(older, (), 13), ModelResponse(says("Twice.")), {12: big})
    assert isinstance(prefix, tuple)
    lines = said(prefix[0]).partition(f"{LARGE}\n")[2].split("\n")
    assert [line.partition(",")[0] for line in lines] == [
        "- old: read_result(item=2",
        "- tool_a: read_result(item=12",
    ]


def test_a_rewritten_context_forgets_what_was_left_out_before_it() -> None:
    left_out = (LeftOut(first=3, last=4), LeftOut(first=9, last=12))
    checkpoint = Checkpoint(session_id="s", context_epoch=2, left_out=left_out)
    after = rewritten(checkpoint, 9)
    assert (after.context_epoch, after.context_from) == (3, 9)
    assert after.left_out == left_out[1:]


@pytest.mark.parametrize(
    "given",
    [
        {"at_tokens": -1},
        {"at_tokens": True},
        {"keep_tokens": 1.5},
        {"at_tokens": 10, "keep_tokens": 10},
        {"model": ""},
        {"model": 3},
        {"instructions": " "},
    ],
)
def test_a_compaction_that_cannot_be_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(Invalid, match="compaction: "):
        Compaction(**given)  # type: ignore[arg-type]

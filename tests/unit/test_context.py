"""What a model is shown: projections of the transcript that are valid whatever is stored."""

from __future__ import annotations

import json

import pytest

from changeover_shared._checkpoint import Checkpoint, Execution, LeftOut
from changeover_shared._errors import Invalid, ToolError
from changeover_shared._items import (
    AnyItem,
    AssistantMessage,
    Item,
    StepRecord,
    ToolCall,
    ToolResult,
    UserMessage,
)
from changeover_shared._results import TurnRecord
from changeover_shared._words import Ending
from changeover_worker import Compaction
from changeover_worker._models.model import ModelResponse
from changeover_worker._turn.context import (
    LOST_BEGINNING,
    LOST_RESULT,
    Entry,
    decode_prefix,
    encode_prefix,
    entries,
    flaw,
    mended,
)
from changeover_worker._turn.ending import abort
from changeover_worker._turn.offload import (
    HEAD_BYTES,
    PAGE_BYTES,
    TAIL_BYTES,
    WHOLE_BYTES,
    Asked,
    page,
    parse,
    shortened,
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
from changeover_worker._turn.rolling_back import (
    NAMED,
    Past,
    aborted_without,
    calls_of,
    rolled_back,
    without,
)
from changeover_worker._turn.shown import shown


def user(text: str = "u", submission: str | None = None) -> UserMessage:
    return UserMessage(text=text, submission_id=submission)


def asks(*ids: str, text: str = "") -> AssistantMessage:
    calls = tuple(ToolCall(call_id=i, name=f"tool_{i}", arguments='{"a": 1}') for i in ids)
    return AssistantMessage(text=text, tool_calls=calls)


def says(text: str = "a") -> AssistantMessage:
    return AssistantMessage(text=text)


def got(id: str, output: object = "done", **given: bool) -> ToolResult:
    return ToolResult.model_validate(
        {"call_id": id, "name": f"tool_{id}", "output": output, **given}
    )


def numbered(*items: Item, first: int = 1) -> tuple[Entry, ...]:
    return tuple(Entry(n, item) for n, item in enumerate(items, first))


def said(item: Item) -> str:
    assert isinstance(item, UserMessage)
    return item.text


def one_turn(text: str, *, size: int = 0) -> list[Item]:
    return [user(text), says("x" * size or "ok")]


# Validity


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


# Large results


def test_a_result_of_exactly_64_kib_is_shown_whole_and_one_byte_more_is_not() -> None:
    whole = got("a", "x" * WHOLE_BYTES)
    assert shortened(7, whole) is whole
    large = shortened(7, got("a", "x" * WHOLE_BYTES + "y"))
    assert isinstance(large.output, str)
    assert large.output.startswith("x" * HEAD_BYTES + "\n[... 65537 bytes in all")
    assert "read_result(item=7, page=1) reads page 1 of 3" in large.output
    assert large.output.endswith("...]\n" + "x" * (TAIL_BYTES - 1) + "y")


@pytest.mark.parametrize("character", ["x", "é", "€", "😀", "\ud800", "\n", '"'])
@pytest.mark.parametrize("offset", range(4))
def test_no_character_is_cut_in_two_and_all_pages_together_are_the_whole(
    character: str, offset: int
) -> None:
    text = "." * offset + character * (WHOLE_BYTES + 1000)
    told = shortened(1, got("a", text)).output
    assert isinstance(told, str)
    assert "\N{REPLACEMENT CHARACTER}" not in told
    clean = text.replace("\ud800", "?")
    head, tail = told.split("\n[...")[0], told.split("...]\n")[-1]
    assert clean.startswith(head)
    assert clean.endswith(tail)
    assert HEAD_BYTES - 3 <= len(head.encode()) <= HEAD_BYTES
    assert TAIL_BYTES <= len(tail.encode()) <= TAIL_BYTES + 3
    pages, number = [], 1
    while True:
        first, _, rest = page(Asked(1, number), got("a", text)).partition("\n")
        pages.append(rest)
        assert len(rest.encode()) <= PAGE_BYTES + 3
        if first == f"[item 1, page {number} of {number}]":
            break
        number += 1
    assert "".join(pages) == clean


def test_a_page_is_never_so_large_that_it_is_cut_again() -> None:
    text = page(Asked(1, 1), got("a", '"' * 200_000))
    read = got("r", text)
    assert shortened(2, read) is read


def test_a_result_that_is_no_text_is_cut_as_its_json() -> None:
    value = {"rows": ["é" * 40_000, 1]}
    told = shortened(3, got("a", value)).output
    assert isinstance(told, str)
    assert told.startswith('{"rows": ["éé')
    assert told.endswith('éé", 1]}')
    assert page(Asked(3, 1), got("a", value)).startswith('[item 3, page 1 of 3]\n{"rows"')


@pytest.mark.parametrize(
    "arguments",
    [
        *("", "[]", "{}", "[" * 9999, '{"item": 1}', '{"item": "1", "page": 1}'),
        *('{"item": true, "page": 1}', '{"item": 1.0, "page": 1}'),
        *('{"item": 0, "page": 1}', '{"item": 1, "page": 0}'),
    ],
)
def test_a_call_that_names_no_page_is_told_what_it_takes(arguments: str) -> None:
    with pytest.raises(ToolError, match="takes item and page, whole numbers from 1 on"):
        parse(arguments)


def test_a_page_that_is_not_there_is_told() -> None:
    assert parse('{"item": 3, "page": 2}') == Asked(3, 2)
    with pytest.raises(ToolError, match="item 3 has 1 pages, there is no page 2"):
        page(Asked(3, 2), got("a"))
    for item in (None, user()):
        with pytest.raises(ToolError, match="item 3 is no tool result"):
            page(Asked(3, 1), item)


def test_reading_is_offered_as_long_as_there_is_something_to_read() -> None:
    small = shown(numbered(user(), asks("a"), got("a")), {})
    assert (small.large, small.offers_reading) == ({}, False)
    big = got("a", "x" * 70_000)
    large = shown(numbered(user(), asks("a"), big), {})
    assert (large.large, large.offers_reading) == ({3: big}, True)
    place = cut(large.entries, keep_tokens=0, own=(), end=4)
    assert place is not None
    prefix = summarised(place, ModelResponse(says("short")), large.large)
    assert isinstance(prefix, tuple)
    after = shown(tuple(Entry(0, item) for item in prefix), {})
    assert "- tool_a: read_result(item=3, page=1) reads page 1 of 3" in said(prefix[0])
    assert after.offers_reading


# Compaction


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


# Rollbacks


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

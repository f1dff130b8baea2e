"""Large results: shown in part, cut between characters, and read by page."""

from __future__ import annotations

import pytest

from changeover_shared._errors import ToolError
from changeover_worker._models.model import ModelResponse
from changeover_worker._turn.context import (
    Entry,
)
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
    cut,
    summarised,
)
from changeover_worker._turn.shown import shown
from tests.support.conversing import asks, got, numbered, said, says, user


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

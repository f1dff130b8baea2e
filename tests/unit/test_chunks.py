"""How a long list of submissions is cut into pipelines."""

import asyncio
from collections.abc import AsyncIterator

from changeover._chunks import MAX_CHUNK_BYTES, aiter_chunks, iter_chunks
from changeover._submission import Message, Submission


def made(count: int) -> list[Submission]:
    return [Submission("s:1", f"text {number}") for number in range(count)]


def test_items_come_in_order_in_chunks_of_the_count_with_the_rest_at_the_end() -> None:
    items = made(7)
    chunks = list(iter_chunks(iter(items), 3))
    assert [len(chunk) for chunk in chunks] == [3, 3, 1]
    assert [item for chunk in chunks for item in chunk] == items


def test_nothing_makes_no_chunk() -> None:
    assert list(iter_chunks([], 3)) == []


def test_large_messages_make_small_chunks() -> None:
    large = Submission("s:1", Message("x" * (MAX_CHUNK_BYTES // 2)))
    assert [len(chunk) for chunk in iter_chunks([large] * 5, 1000)] == [2, 2, 1]


async def test_an_ordinary_iterable_is_cut_the_same_way() -> None:
    items = made(7)
    assert [chunk async for chunk in aiter_chunks(items, 3)] == list(iter_chunks(items, 3))


async def test_a_source_that_is_quick_fills_its_chunks() -> None:
    async def source() -> AsyncIterator[Submission]:
        for item in made(7):
            yield item

    assert [len(chunk) async for chunk in aiter_chunks(source(), 3)] == [3, 3, 1]


async def test_a_source_that_takes_its_time_does_not_hold_back_what_it_has_given() -> None:
    go_on = asyncio.Event()

    async def source() -> AsyncIterator[Submission]:
        items = made(3)
        yield items[0]
        yield items[1]
        await go_on.wait()
        yield items[2]

    chunks = aiter_chunks(source(), 1000)
    assert len(await anext(chunks)) == 2
    go_on.set()
    assert [len(chunk) async for chunk in chunks] == [1]


async def test_the_error_of_a_source_comes_after_what_it_gave_before() -> None:
    async def source() -> AsyncIterator[Submission]:
        for item in made(3):
            yield item
        raise OSError("the file is cut off")

    sizes = []
    try:
        async for chunk in aiter_chunks(source(), 3):
            sizes += [len(chunk)]
    except OSError as error:
        assert "cut off" in str(error)
    assert sizes == [3]

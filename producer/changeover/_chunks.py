"""Cut what `submit_many` is given into chunks, one pipeline each.

Both twins are written by hand: only the asynchronous one may send a chunk that is not full while
its source takes its time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import Any

from changeover._submission import Message, Submission
from changeover_shared._errors import Invalid

MAX_CHUNK_BYTES = 4 * 1024 * 1024
"""A chunk is full at so many bytes of text, however few its submissions."""
LINGER_S = 0.005
"""How long a chunk that is not full waits for the next submission of a slow source."""

AsyncItems = Iterable[Submission] | AsyncIterable[Submission]
Items = Iterable[Submission]


class _End:
    """No item follows; told by its own class, because a wrong item may be anything."""


class _Chunk:
    """Submissions up to a count or a size."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.items: list[Submission] = []
        self._weight = 0

    def add(self, item: Submission) -> bool:
        """Add one; answers whether the chunk is full."""
        self.items.append(item)
        self._weight += _weight(item)
        return len(self.items) >= self._count or self._weight >= MAX_CHUNK_BYTES


def _weight(item: Submission) -> int:
    # What is no submission is refused in its place, where the others are checked.
    message: Any = getattr(item, "message", None)
    text = message.text if isinstance(message, Message) else message
    return len(text) if isinstance(text, str) else 0


def checked_count(in_flight: int) -> int:
    """Return how many submissions may be under way; raises `Invalid`."""
    if isinstance(in_flight, bool) or not isinstance(in_flight, int) or in_flight < 1:
        raise Invalid(field="in_flight", reason=f"{in_flight!r:.80} is no whole number above 0")
    return in_flight


def iter_chunks(items: Items, count: int) -> Iterator[list[Submission]]:
    """Yield the items in order, in lists that are never empty."""
    chunk = _Chunk(count)
    for item in items:
        if chunk.add(item):
            yield chunk.items
            chunk = _Chunk(count)
    if chunk.items:
        yield chunk.items


async def aiter_chunks(items: AsyncItems, count: int) -> AsyncIterator[list[Submission]]:
    """The same; a slow source's items go out without waiting for a full chunk."""
    if not isinstance(items, AsyncIterable):
        for chunk in iter_chunks(items, count):
            yield chunk
        return
    source = aiter(items)
    upcoming = asyncio.ensure_future(_advance(source))
    try:
        while True:
            gathered = _Chunk(count)
            item = await upcoming
            while not isinstance(item, _End):
                upcoming = asyncio.ensure_future(_advance(source))
                if gathered.add(item) or not (await asyncio.wait([upcoming], timeout=LINGER_S))[0]:
                    break
                item = await upcoming
            if gathered.items:
                yield gathered.items
            if isinstance(item, _End):
                return
    finally:
        upcoming.cancel()


async def _advance(source: AsyncIterator[Submission]) -> Submission | _End:
    """The next item, or `_End`."""
    return await anext(source, _End())

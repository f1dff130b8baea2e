"""What a recorder has admitted and is not yet durable: counted, merged and in order. No I/O."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from enum import Enum, auto
from typing import Final

from changeover_shared._events import Delta, Event
from changeover_shared._items import Phase
from changeover_worker._session.admitted import Admitted, Barrier, Stream, Text, Whole

CAPACITY: Final = 512
"""How many events may be admitted and not yet durable; merged deltas count one by one."""
CAPACITY_BYTES: Final = 8 * 1024**2
"""How many bytes of serialised events may be admitted and not yet durable."""
MERGE_BYTES: Final = 16 * 1024
"""So much merged text is one event at most: raw UTF-8, as the provider sent it."""


class Put(Enum):
    """Where a delta went."""

    MERGED = auto()
    BEGUN = auto()
    """It waits for more to merge with; what was merged before is to be written."""
    QUEUED = auto()
    """It is to be written."""


class Backlog:
    """Everything between its admission and its answer from Redis."""

    __slots__ = ("_merging", "_phase", "_queue", "_stream", "count", "size")

    def __init__(self) -> None:
        self._queue: deque[Admitted] = deque()
        self._merging: Text | None = None
        self._stream: Stream | None = None
        self._phase: Phase | None = None
        self.count = 0
        """How many events are admitted and not released."""
        self.size = 0
        """How many bytes they are."""

    def __bool__(self) -> bool:
        """Whether anything may be written."""
        return bool(self._queue)

    def fits(self, cost: int) -> bool:
        """Whether there is room for an event of so many bytes."""
        return self.count < CAPACITY and self.size + cost <= CAPACITY_BYTES

    def put(self, entry: Whole | Barrier) -> None:
        """Take what text is not merged across."""
        self.count += entry.count
        self.size += entry.cost
        self.end_stream()
        self._queue.append(entry)

    def put_delta(self, delta: Delta, cost: int, done: asyncio.Future[None] | None) -> Put:
        """Take a delta that names its stream itself."""
        stream = self._stream
        stamp = {name: getattr(delta, name) for name in ("submission_id", "turn_id", "step_id")}
        if stream is None or stream.stamp != stamp:
            stream = Stream(stamp)
        return self.put_text(stream, delta.text, delta.phase, cost, done)

    def put_text(
        self,
        stream: Stream,
        text: str,
        phase: Phase,
        cost: int,
        done: asyncio.Future[None] | None = None,
    ) -> Put:
        """Take a delta; `done` is told of it only when it is queued."""
        self.count += 1
        self.size += cost
        raw = len(text) if text.isascii() else len(text.encode())
        same = stream is self._stream and phase == self._phase
        merging = self._merging
        if same and merging is not None and merging.raw + raw <= MERGE_BYTES:
            merging.texts.append(text)
            merging.raw += raw
            merging.cost += cost
            return Put.MERGED
        self.seal()
        if same and raw <= MERGE_BYTES:
            self._merging = Text(stream, phase, [text], raw, cost)
            return Put.BEGUN
        self._stream, self._phase = stream, phase
        self._queue.append(Text(stream, phase, [text], raw, cost, done))
        return Put.QUEUED

    def seal(self) -> None:
        """Merge no more into what is being merged."""
        if self._merging is not None:
            self._queue.append(self._merging)
            self._merging = None

    def end_stream(self) -> None:
        """Let the next delta be the first of its stream."""
        self.seal()
        self._stream = None

    def due(self) -> list[Admitted]:
        """Take out what is to be written: all but the end of a closed stream, which goes with the
        commit that ends its step."""
        due = list(self._queue)
        while due and (stream := _stream_of(due[-1])) is not None and stream.closed:
            due.pop()
        for _ in due:
            self._queue.popleft()
        return due

    def take_back(self, stream: Stream) -> list[Event]:
        """Take out the deltas of a stream that nothing else came after."""
        mine: list[Admitted] = []
        while self._queue and _stream_of(self._queue[-1]) is stream:
            mine.insert(0, self._queue.pop())
        self.release(mine)
        return [entry.event() for entry in mine if not isinstance(entry, Barrier)]

    def drop(self) -> list[Admitted]:
        """Take everything out."""
        self.end_stream()
        dropped = list(self._queue)
        self._queue.clear()
        return dropped

    def release(self, entries: Sequence[Admitted]) -> None:
        """Give the room back that entries took."""
        for entry in entries:
            self.count -= entry.count
            self.size -= entry.cost


def _stream_of(entry: Admitted) -> Stream | None:
    return entry.stream if isinstance(entry, Text) else None

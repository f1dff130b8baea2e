"""What a model says while it streams, on its way into the journal.

The first piece of a stream is written at once, so that a reader sees it soon; later ones are
merged for up to 40 ms or 16 KiB, so that a burst costs few writes. A provider's piece is never
split. `emit` returns when a piece is admitted, not when it is durable: what counts is the text
that is committed when the step ends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import to_json

from changeover_shared._errors import TooLarge
from changeover_shared._events import Delta
from changeover_shared._items import Phase
from changeover_worker._models.model import EmitRefused, ModelDelta, TextDelta
from changeover_worker._session.writer import Writer
from changeover_worker._turn.draft import Tail

MERGE_S: Final = 0.040
MERGE_BYTES: Final = 16 * 1024
"""Of raw UTF-8, as the provider sent it."""
CAPACITY: Final = 512
"""How many pieces may be admitted and not yet durable."""
CAPACITY_BYTES: Final = 8 * 1024**2
"""How many bytes of serialised events may be admitted and not yet durable."""
_EVENT_BYTES: Final = len(Delta(text="").body().encode())


@dataclass(slots=True)
class _Batch:
    """Neighbouring pieces of one stream: one event."""

    phase: Phase
    texts: list[str]
    raw: int
    cost: int

    def takes(self, piece: _Batch) -> bool:
        return self.phase == piece.phase and self.raw + piece.raw <= MERGE_BYTES

    def add(self, piece: _Batch) -> None:
        self.texts += piece.texts
        self.raw += piece.raw
        self.cost += piece.cost


class StepRecorder:
    """Takes the deltas of one model step. After `close` it takes nothing more."""

    __slots__ = (
        "_bytes",
        "_closed",
        "_count",
        "_failure",
        "_merging",
        "_queue",
        "_room",
        "_seqs",
        "_stamp",
        "_stream",
        "_timer",
        "_writer",
        "_writing",
    )

    def __init__(self, writer: Writer, stamp: dict[str, Any]) -> None:
        self._writer = writer
        self._stamp = stamp
        self._stream: Phase | None = None
        self._merging: _Batch | None = None
        self._queue: deque[_Batch] = deque()
        self._count = 0
        self._bytes = 0
        self._seqs: list[int] = []
        self._closed = False
        self._failure: Exception | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._room: asyncio.Future[None] | None = None

    @property
    def stamp(self) -> dict[str, Any]:
        """Which submission, turn and step its events belong to."""
        return self._stamp

    async def emit(self, delta: ModelDelta) -> None:
        """Admit a piece; waits while too much is on its way.

        Raises `EmitRefused` once the step has ended, and `TooLarge` for a piece that could never
        be written.
        """
        self._refuse_if_closed()
        if isinstance(delta, TextDelta) and delta.text:
            await self._admit(delta.text, delta.phase)

    def stop(self) -> None:
        """Take nothing more from here on, and begin no further write."""
        self._closed = True
        self._make_room()

    async def close(self) -> Tail:
        """End the step: late pieces are refused, and what is in flight gets its answer.

        Returns what was admitted and not written, and where the rest lies. Raises the first
        failure of a write, a `LeaseError` as a rule.
        """
        self.stop()
        self._seal()
        if self._writing is not None:
            await asyncio.shield(self._writing)
        if self._failure is not None:
            raise self._failure
        events = tuple(self._event(batch) for batch in self._queue)
        self._queue.clear()
        return Tail(events=events, seqs=tuple(self._seqs))

    async def _admit(self, text: str, phase: Phase) -> None:
        cost = _EVENT_BYTES + len(to_json(text)) - 2
        if cost > CAPACITY_BYTES:
            raise TooLarge(what="a piece of streamed text", size=cost, limit=CAPACITY_BYTES)
        while self._count >= CAPACITY or self._bytes + cost > CAPACITY_BYTES:
            self._flush()
            await self._room_made()
            self._refuse_if_closed()
        self._count += 1
        self._bytes += cost
        self._put(_Batch(phase, [text], len(text.encode()), cost))

    def _put(self, piece: _Batch) -> None:
        if self._merging is not None and self._merging.takes(piece):
            self._merging.add(piece)
        elif piece.phase == self._stream and piece.raw <= MERGE_BYTES:
            self._flush()
            self._merging = piece
            self._timer = asyncio.get_running_loop().call_later(MERGE_S, self._flush)
        else:
            self._seal()
            self._queue.append(piece)
            self._stream = piece.phase
            self._write()

    def _seal(self) -> None:
        """Merge no more into what is being merged."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._merging is not None:
            self._queue.append(self._merging)
            self._merging = None

    def _flush(self) -> None:
        self._seal()
        self._write()

    def _write(self) -> None:
        if self._queue and (self._writing is None or self._writing.done()):
            self._writing = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        while self._queue and not self._closed:
            batches = tuple(self._queue)
            self._queue.clear()
            try:
                answer = await self._writer.append([self._event(batch) for batch in batches])
            except Exception as why:
                self._failure = why
                self.stop()
            else:
                if not answer.dropped:
                    self._seqs += range(answer.first_seq, answer.first_seq + len(batches))
                self._count -= sum(len(batch.texts) for batch in batches)
                self._bytes -= sum(batch.cost for batch in batches)
            self._make_room()

    async def _room_made(self) -> None:
        if self._room is None:
            self._room = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._room)

    def _make_room(self) -> None:
        if self._room is not None:
            self._room.set_result(None)
            self._room = None

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise EmitRefused("the step has ended; the text was dropped; stop streaming")

    def _event(self, batch: _Batch) -> Delta:
        return Delta(phase=batch.phase, text="".join(batch.texts), **self._stamp)

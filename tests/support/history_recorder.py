"""Record what is asked of the scripts, at the seam between the stores and the executor.

In one process, tap each fleet: `LeaseStore(RecordedFleet(fleet, recorder))`. A process that runs
on its own, such as a worker, records into a file of its own: its app module calls
`record_this_process`. A call is in the file before it is sent, so that one of a killed process is
known as a call without an answer.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from changeover_shared._settings import Settings
from changeover_shared._store import decode
from changeover_shared._store.executor import Executor
from changeover_shared._store.fleet import Fleet
from changeover_shared._store.requests import Request
from changeover_shared._store.store import Store
from changeover_shared._store.sync_executor import SyncExecutor
from changeover_shared._store.sync_fleet import SyncFleet
from tests.support.history_records import (
    REFUSED,
    Final,
    Line,
    Record,
    answers,
    asks,
    records_of,
)


class Recorder:
    """Collects what one worker or producer asks and is told. Safe to share by threads."""

    def __init__(self, who: str, path: Path | None = None) -> None:
        self._who = who
        self._lines: list[Line] = []
        self._count = 0
        self._lock = threading.Lock()
        self._file = None if path is None else path.open("ab", buffering=0)

    @property
    def records(self) -> list[Record]:
        """What was recorded so far, unless it goes to a file."""
        return records_of(self._lines)

    def close(self) -> None:
        """Write no more."""
        if self._file is not None:
            self._file.close()

    def asked(self, request: Request) -> int:
        """Note a call before it is sent; its number."""
        return self._note(script=request.name, asks=asks(request))

    def told(self, number: int, request: Request, reply: Sequence[Any]) -> None:
        """Note the answer of a call."""
        self._write({"no": number, "told": answers(request, reply), "at": time.monotonic()})

    def refused(self, session: str, id: str) -> None:
        """Note that a caller was told, finally, that its submission is not accepted."""
        number = self._note(script="told", asks=[(session, {"id": id})])
        self._write({"no": number, "told": [[REFUSED]], "at": time.monotonic()})

    def _note(self, **what: Any) -> int:
        with self._lock:
            self._count += 1
            number = self._count
        self._write({"no": number, **what, "at": time.monotonic()})
        return number

    def _write(self, line: Line) -> None:
        line["who"] = self._who
        if self._file is None:
            self._lines.append(line)
        else:
            self._file.write(json.dumps(line).encode() + b"\n")


class RecordedFleet(Fleet):
    """A fleet whose calls are recorded; it shares everything else with the one below it."""

    __slots__ = ("_below", "_recorder")

    def __init__(self, below: Fleet, recorder: Recorder) -> None:
        self.__dict__ = below.__dict__
        self._below = below
        self._recorder = recorder

    async def call(self, request: Request) -> list[Any]:
        number = self._recorder.asked(request)
        reply = await self._below.call(request)
        self._recorder.told(number, request, reply)
        return reply

    async def call_all(self, requests: Sequence[Request]) -> list[list[Any] | Exception]:
        numbers = [self._recorder.asked(request) for request in requests]
        replies = await self._below.call_all(requests)
        for number, request, reply in zip(numbers, requests, replies, strict=True):
            if not isinstance(reply, Exception):
                self._recorder.told(number, request, reply)
        return replies


class RecordedSyncFleet(SyncFleet):
    """The same without an event loop."""

    __slots__ = ("_below", "_recorder")

    def __init__(self, below: SyncFleet, recorder: Recorder) -> None:
        self.__dict__ = below.__dict__
        self._below = below
        self._recorder = recorder

    def call(self, request: Request) -> list[Any]:
        number = self._recorder.asked(request)
        reply = self._below.call(request)
        self._recorder.told(number, request, reply)
        return reply

    def call_all(self, requests: Sequence[Request]) -> list[list[Any] | Exception]:
        numbers = [self._recorder.asked(request) for request in requests]
        replies = self._below.call_all(requests)
        for number, request, reply in zip(numbers, requests, replies, strict=True):
            if not isinstance(reply, Exception):
                self._recorder.told(number, request, reply)
        return replies


@contextmanager
def recording(directory: Path, name: str) -> Iterator[Recorder]:
    """Record every fleet that this process joins in the block into a file of `directory`."""
    join, sync_join = Fleet.join, SyncFleet.join
    recorder = record_this_process(directory, name)
    try:
        yield recorder
    finally:
        recorder.close()
        Fleet.join = join  # type: ignore[method-assign]
        SyncFleet.join = sync_join  # type: ignore[method-assign]


def record_this_process(directory: Path, name: str) -> Recorder:
    """Record every fleet that this process joins from here on into a file of `directory`."""
    recorder = Recorder(f"{name}:{os.getpid()}", directory / f"{name}-{os.getpid()}.jsonl")
    join, sync_join = Fleet.join, SyncFleet.join

    async def recorded(executor: Executor, settings: Settings) -> Fleet:
        return RecordedFleet(await join(executor, settings), recorder)

    def sync_recorded(executor: SyncExecutor, settings: Settings) -> SyncFleet:
        return RecordedSyncFleet(sync_join(executor, settings), recorder)

    Fleet.join = recorded  # type: ignore[method-assign]
    SyncFleet.join = sync_recorded  # type: ignore[method-assign]
    return recorder


async def final_states(store: Store, sessions: Iterable[str]) -> dict[str, Final]:
    """What the store holds of sessions; those that it does not know are left out."""
    found = {}
    for session in sessions:
        partition = store.keys.of(session)
        names = ("fence", "rev", "seq", "first_seq")
        read = store._fleet.executor.commands
        head, receipts, epoch = await read(
            [
                ("HMGET", partition.session(session, "head"), *names),
                ("HGETALL", partition.session(session, "receipts")),
                ("HGET", partition.named("meta"), "epoch"),
            ]
        )
        if head[0] is None and head[2] is None:
            continue
        fence, rev, seq, first_seq = (int(value or 0) for value in head)
        states = (
            decode.receipt(id.decode(), value)
            for id, value in decode.pairs(receipts)
            if value  # a field without a value keeps the key alive
        )
        found[session] = Final(
            fence=fence,
            rev=rev,
            seq=seq,
            first_seq=first_seq or 1,
            epoch=int(epoch or 1),
            journal=await store.journal(session, limit=1_000_000),
            receipts={state.submission_id: state for state in states if state is not None},
        )
    return found

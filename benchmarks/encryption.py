"""What encrypted payloads cost: the same appends and commits with and without, turn about.

Two fleets on one server, each with one held session, in one process: a write of one, then the same
write of the other, so that a busy moment falls on both. An append brings 4 KiB of streamed text, a
commit a transcript item, an event and a checkpoint of 4 KiB each.
"""

from __future__ import annotations

import secrets
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from statistics import median

from benchmarks._plan import Measurement, Row, Scale, Values
from benchmarks._server import Server, server
from changeover_shared._events import AssistantSaid, Delta, Event
from changeover_shared._identifiers import new_incarnation, new_nonce
from changeover_shared._items import AssistantMessage, encode_item
from changeover_shared._ops import MessageOp, digest, encode_op
from changeover_shared._settings import read_settings
from changeover_shared._store.executor import Executor
from changeover_shared._store.fleet import Fleet
from changeover_shared._store.keys import route_of
from changeover_shared._store.lease_store import LeaseStore
from changeover_shared._store.payloads import EncryptedPayloads, KeyRing
from changeover_shared._store.records import Commit, Committed, Create, Grant, Submit
from changeover_shared._store.store import Store
from changeover_shared._words import CommitKind

SIZE = 4096
TEXT = "y" * SIZE
SESSION = "s"
ROUTE = route_of("assistant")


class _Held:
    """One held session and the next writes of its turn."""

    def __init__(self, store: LeaseStore, grant: Grant) -> None:
        self._store = store
        self._lease = grant.lease
        self._rev = grant.head.rev
        self._batch = 0

    async def append(self) -> None:
        self._batch += 1
        await self._store.append(self._lease, self._batch, (Delta(text=TEXT),))

    async def start(self) -> None:
        await self._commit(CommitKind.START, take=(1,))

    async def commit(self) -> None:
        await self._commit(
            CommitKind.STEP,
            items=(encode_item(AssistantMessage(text=TEXT)),),
            events=(AssistantSaid(text=TEXT),),
        )

    async def _commit(
        self,
        kind: CommitKind,
        *,
        take: tuple[int, ...] = (),
        items: tuple[str, ...] = (),
        events: tuple[Event, ...] = (),
    ) -> None:
        asked = Commit(
            new_nonce(), self._rev, "t_1", kind, TEXT, take=take, items=items, events=events
        )
        done = await self._store.commit(self._lease, asked)
        if not isinstance(done, Committed):
            raise RuntimeError(f"refused: {done}")
        self._rev = done.rev


async def _run(scale: Scale) -> Values:
    count = scale.of(3000, 300)
    with server() as on:
        async with _held(on, encrypts=False) as plain, _held(on, encrypts=True) as encrypted:
            values: dict[str, float] = {}
            for name, one, other in (
                ("append", plain.append, encrypted.append),
                ("commit", plain.commit, encrypted.commit),
            ):
                values |= {
                    f"{name}_{which}": us
                    for which, us in (await _turn_about(one, other, count)).items()
                }
    return values | _codec_alone(count)


@asynccontextmanager
async def _held(on: Server, *, encrypts: bool) -> AsyncIterator[_Held]:
    prefix = "encrypted" if encrypts else "plain"
    key = on.directory / "key"
    key.write_bytes(b64encode(secrets.token_bytes(32)))
    settings = read_settings(prefix=prefix, partitions=1, payload_keys=str(key) if encrypts else "")
    executor = await Executor.connect(on.url)
    try:
        fleet = await Fleet.join(executor, settings)
        op = MessageOp(text=TEXT)
        create = Create(ROUTE, "assistant")
        await Store(fleet).submit(Submit(SESSION, "m1", digest(op), "turn", encode_op(op), create))
        store = LeaseStore(fleet)
        (grant,) = await store.claim(
            0,
            ROUTE,
            [SESSION],
            incarnation=new_incarnation("bench"),
            nonce=new_nonce(),
            ttl_ms=600_000,
            max_step_ms=600_000,
            not_after_ms=store.clock.now_ms() + 5_000,
        )
        if not isinstance(grant, Grant):
            raise RuntimeError(f"not granted: {grant}")
        held = _Held(store, grant)
        await held.start()
        yield held
    finally:
        await executor.aclose()


async def _turn_about(
    plain: Callable[[], Awaitable[None]], encrypted: Callable[[], Awaitable[None]], count: int
) -> dict[str, float]:
    """The median time of each, and the median of the CPU time that the second took more than the
    first beside it, in this process."""
    times: list[tuple[float, float]] = []
    cpu: list[float] = []
    for _ in range(count):
        began, cpu_began = time.perf_counter(), time.process_time()
        await plain()
        between, cpu_between = time.perf_counter(), time.process_time()
        await encrypted()
        ended, cpu_ended = time.perf_counter(), time.process_time()
        times.append((between - began, ended - between))
        cpu.append((cpu_ended - cpu_between) - (cpu_between - cpu_began))
    return {
        "plain": median(one for one, _ in times) * 1e6,
        "encrypted": median(other for _, other in times) * 1e6,
        "more": median(cpu) * 1e6,
    }


def _codec_alone(count: int) -> dict[str, float]:
    ring = KeyRing([secrets.token_bytes(32)])
    payloads = EncryptedPayloads(ring, ring.new_secret(), fleet="bench")
    mine = payloads.of(SESSION)
    sealed = [mine.seal("item", TEXT) for _ in range(count)]
    began = time.perf_counter()
    for _ in range(count):
        mine.seal("item", TEXT)
    between = time.perf_counter()
    for one in sealed:
        mine.open("item", one if isinstance(one, bytes) else b"")
    ended = time.perf_counter()
    return {"seal": (between - began) / count * 1e6, "open": (ended - between) / count * 1e6}


def _rows() -> tuple[Row, ...]:
    rows = [Row("seal", "encrypt 4 KiB", "us"), Row("open", "decrypt 4 KiB", "us")]
    for name, what in (("append", "append of 4 KiB"), ("commit", "commit of 3 x 4 KiB")):
        rows += [
            Row(f"{name}_plain", what, "us"),
            Row(f"{name}_encrypted", f"{what}, encrypted", "us"),
            Row(f"{name}_more", f"{what}, CPU that encryption adds", "us"),
        ]
    return tuple(rows)


ENCRYPTION = Measurement("encryption", _rows(), _run)

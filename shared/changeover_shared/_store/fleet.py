"""A fleet as one process sees it: its keys, its guards, and how they are satisfied.

Every script first asks whether the caller means this universe. The answers that concern the
fleet rather than the session end here: a partition that does not exist yet is created, a server
that is another one than before begins a new epoch, and then the same request is repeated.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from changeover_shared._errors import FormatTooNew, NotDurable, PartitionMismatch, StoreUnavailable
from changeover_shared._server.foreign_errors import MemoryFull
from changeover_shared._settings import Durability, Settings
from changeover_shared._store import decode
from changeover_shared._store.barrier import Need
from changeover_shared._store.calls import Call
from changeover_shared._store.clock import ServerClock, time_ms
from changeover_shared._store.executor import Executor
from changeover_shared._store.fsync import fsyncs_each_write
from changeover_shared._store.keys import Keys, Slot
from changeover_shared._store.limits import Difference, limited, limits_of
from changeover_shared._store.payloads import (
    PLAIN,
    EncryptedPayloads,
    KeyRing,
    Payloads,
    key_id_of,
    read_key_ring,
    unencrypted,
)
from changeover_shared._store.records import Head
from changeover_shared._store.requests import Request
from changeover_shared._store.scripts import Value, script
from changeover_shared._store.sealing import sealed
from changeover_shared._units import milliseconds
from changeover_shared._words import LAYOUT

S = TypeVar("S", bound=Slot)

OnReply = Callable[[Request, list[Any], float], None]
"""Hears of a script's reply: the request, the reply, and how long it took in seconds."""

BELL_MS = 3_600_000
"""How long a bell that nobody listens to is kept: the sweep of whoever comes later rings anew."""
ALARM_MS = 60_000
"""How long an alarm is kept: by then every lease has been renewed."""
PAUSE_S = 0.1
"""How long to wait before a request is repeated whose answer is not final."""
REPEATS = 8
"""How often the guards may send one request back before something is wrong with the server."""


class Confirmation(NamedTuple):
    """What has become of what was written to a partition."""

    same_history: bool
    """False after a failover: it may be forgotten."""
    enough: bool
    confirmed: int
    """How many disks or replicas have it."""
    needed: int


class Fleet:
    """The seam between the stores and the executor."""

    def __init__(
        self,
        executor: Executor,
        keys: Keys,
        *,
        settings: Settings,
        differences: tuple[Difference, ...],
        payloads: Payloads = PLAIN,
    ) -> None:
        self.executor = executor
        self.keys = keys
        self.settings = settings
        """What this process was told, with the limits of the fleet."""
        self.differences = differences
        """Limits that this process was told and that do not hold."""
        self.payloads = payloads
        """How what it holds of conversations is stored."""
        self.on_reply: OnReply = lambda request, reply, seconds: None
        """Hears of every reply to `call`."""
        self._fsyncs: tuple[int, bool] | None = None
        """Whether the servers fsync each write, and how often they had changed when they were
        asked."""

    @property
    def clock(self) -> ServerClock:
        """Redis's time, estimated from replies."""
        return self.executor.clock

    @classmethod
    async def join(cls, executor: Executor, settings: Settings) -> Fleet:
        """Join the fleet of `settings.prefix`, creating it if there is none.

        Raises `PartitionMismatch` when `partitions` was set and the fleet has another number,
        `FormatTooNew` for a layout of a newer release, `PayloadError` when the fleet encrypts
        with a key that this process does not have, `Invalid` for a file that holds no key,
        `StoreUnavailable`.
        """
        ring = read_key_ring(settings.payload_keys)
        keys = Keys(settings.prefix, settings.partitions)
        mine = json.dumps(
            {
                "partitions": settings.partitions,
                "layout": LAYOUT,
                "limits": limits_of(settings),
            }
        )
        try:
            read = [("GET", keys.config), ("GET", keys.secret)]
            stored, secret, now = await executor.commands([*read, ("TIME",)])
            # A full memory refuses to create a fleet, but not to join one.
            if stored is None:
                create = ("SET", keys.config, mine, "NX")
                _, stored, secret = await executor.commands([create, *read])
        except StoreUnavailable as error:
            raise StoreUnavailable(reason=error.reason, where=executor.where) from error
        executor.clock.saw(time_ms(now))
        fleet = json.loads(stored)
        if fleet["layout"] != LAYOUT:
            raise FormatTooNew(what=f"fleet {settings.prefix!r}", found=str(fleet["layout"]))
        partitions = int(fleet["partitions"])
        if partitions != settings.partitions and "partitions" in settings.model_fields_set:
            raise PartitionMismatch(
                prefix=settings.prefix, fleet=partitions, asked=settings.partitions
            )
        shared, differences = limited(settings, fleet["limits"])
        fleet = cls(
            executor,
            Keys(settings.prefix, partitions),
            settings=shared,
            differences=differences,
            payloads=await cls._payloads(executor, keys, ring, secret),
        )
        # What this process was told to wait for must be something that the servers can say.
        await fleet._fsyncs_anyhow(shared.durability)
        return fleet

    @classmethod
    async def _payloads(
        cls, executor: Executor, keys: Keys, ring: KeyRing | None, stored: bytes | None
    ) -> Payloads:
        """How the fleet stores payloads; it encrypts once a process that has keys has joined."""
        if ring is None:
            return unencrypted(stored, fleet=keys.prefix)
        if stored is None:
            create = ("SET", keys.secret, ring.new_secret(), "NX")
            _, stored = await executor.commands([create, ("GET", keys.secret)])
        payloads = EncryptedPayloads(ring, stored, fleet=keys.prefix)
        if key_id_of(stored) != ring.first:
            # Whoever joins next tries again.
            with suppress(MemoryFull):
                await executor.command("SET", keys.secret, payloads.rotated_secret(), "XX")
        return payloads

    async def call(self, request: Request) -> list[Any]:
        """Run a script; its word and values. Raises `StoreUnavailable`, `PartitionMismatch`."""
        for _ in range(REPEATS):
            began = time.monotonic()
            reply = await self.executor.run(self._call(request))
            self.on_reply(request, reply, time.monotonic() - began)
            if not await self._sent_back(request, reply):
                return reply
        raise StoreUnavailable(reason=f"{request.name} was sent back {REPEATS} times")

    async def call_all(self, requests: Sequence[Request]) -> list[list[Any] | Exception]:
        """Run scripts in one pipeline; each has its own reply or error."""
        replies = await self.executor.run_all([self._call(request) for request in requests])
        for i, request in enumerate(requests):
            reply = replies[i]
            if isinstance(reply, list) and reply[0] in ("NO_FLEET", "EPOCH", "LAYOUT"):
                try:
                    await self._sent_back(request, reply)
                    replies[i] = await self.call(request)
                except (StoreUnavailable, PartitionMismatch) as error:
                    replies[i] = error
        return replies

    async def read_head(self, session_id: str) -> Head | None:
        """A session's head, without what it holds of the conversation; None when there is none."""
        key = self.keys.of(session_id).session(session_id, "head")
        return decode.head(await self.executor.command("HGETALL", key))

    async def final(
        self, ask: Callable[..., Request], *, granted: Container[str], deadline: float
    ) -> list[Any]:
        """Ask with `not_after_ms` until the answer is final: a word of `granted`, or a refusal
        that no earlier copy of the request can turn into one any more.

        What was granted is also as safe as this process was told. Raises `StoreUnavailable` once
        `deadline`, on the monotonic clock, has passed, and `NotDurable`.
        """
        unresolved = 0
        while True:
            left_ms = max(1, round((deadline - time.monotonic()) * 1000))
            not_after = self.clock.now_ms() + left_ms
            request = ask(not_after_ms=not_after)
            try:
                marks = await self.marks([request.partition])
                reply = await self.call(request)
                if reply[0] == "LATE":
                    raise StoreUnavailable(reason="no answer in time")
                final = reply[0] in granted or unresolved <= self.clock.now_ms()
                if final and (reply[0] not in granted or await self._safe(marks)):
                    return reply
            except StoreUnavailable:
                if time.monotonic() >= deadline:
                    raise
                unresolved = not_after
            await asyncio.sleep(PAUSE_S)

    async def _safe(self, marks: Mapping[Slot, str]) -> bool:
        """Whether what was granted is as safe as this process was told; False: ask again.

        Raises `NotDurable`.
        """
        durability = self.settings.durability
        for found in (await self.confirm(marks, durability)).values():
            if not found.same_history:
                return False
            if not found.enough:
                raise self.not_durable(durability, found)
        return True

    async def marks(self, partitions: Iterable[S]) -> dict[S, str]:
        """The histories of some partitions, to be taken before what is written there."""
        found = dict.fromkeys(partitions, "")
        for one in found:
            # What cannot be reached now has no history that could be confirmed later.
            with suppress(StoreUnavailable):
                found[one] = await self.executor.replication_id(one.named("meta"))
        return found

    async def confirm(
        self, marks: Mapping[S, str], durability: Durability
    ) -> dict[S, Confirmation]:
        """Wait until everything written before to some partitions is as safe as asked for.

        A history that is not the marked one any more confirms nothing: what was written may be
        forgotten, and must be asked for again. Raises `StoreUnavailable`, and `ServerUnfit` for a
        server that cannot say when its disk has something.
        """
        if durability == "memory" or not marks or await self._fsyncs_anyhow(durability):
            return {one: Confirmation(True, True, 1, 1) for one in marks}
        need = Need(
            durability,
            self.settings.durability_replicas,
            milliseconds(self.settings.durability_timeout),
        )
        keys = [one.named("barrier") for one in marks]
        answers = await self.executor.confirmed(keys, need)
        return {
            one: Confirmation(replid == mark != "", count >= need.enough, count, need.enough)
            for (one, mark), (count, replid) in zip(marks.items(), answers, strict=True)
        }

    def not_durable(
        self, durability: Durability, found: Confirmation, submission_id: str | None = None
    ) -> NotDurable:
        """The error of what was not confirmed in time."""
        return NotDurable(
            durability=durability,
            confirmed=found.confirmed,
            needed=found.needed,
            waited=self.settings.durability_timeout,
            submission_id=submission_id,
        )

    async def _fsyncs_anyhow(self, durability: Durability) -> bool:
        """Whether an answer of the servers says by itself that their disks have it."""
        if durability != "fsync":
            return False
        changes = self.executor.changes
        if self._fsyncs is None or self._fsyncs[0] != changes:
            self._fsyncs = (changes, await fsyncs_each_write(self.executor))
        return self._fsyncs[1]

    async def ring(self, rung: Iterable[tuple[str, int]]) -> None:
        """Wake workers of (route, partition) pairs. A hint: never raises."""
        now_ms = self.clock.now_ms()
        members: dict[str, list[int]] = {}
        for route, partition in rung:
            members.setdefault(route, []).extend((now_ms, partition))
        if members:
            commands: list[tuple[Value, ...]] = []
            for one, found in members.items():
                bell = self.keys.bell(one)
                commands += [("ZADD", bell, "NX", *found), ("PEXPIRE", bell, BELL_MS)]
            with suppress(StoreUnavailable):
                await self.executor.commands(commands)

    async def raise_alarm(self, partitions: Iterable[int]) -> None:
        """Have holders in these partitions look for controls now. A hint: never raises."""
        found = [part for one in partitions for part in (self.clock.now_ms(), one)]
        if found:
            alarm = self.keys.alarm
            with suppress(StoreUnavailable):
                await self.executor.commands(
                    [("ZADD", alarm, *found), ("PEXPIRE", alarm, ALARM_MS)]
                )

    def _call(self, request: Request) -> Call:
        """A request as it is run on its partition's server, whichever that is by then."""
        request = sealed(request, self.payloads)
        asked = script(request.name)
        keys = {"meta": request.partition.named("meta"), **request.keys}
        universe = {"partitions": self.keys.partitions, "layout": LAYOUT}

        def arguments(replid: str) -> tuple[int, list[Value]]:
            args = {**universe, "replid": replid, **request.args}
            return asked.arguments(keys, args, each=request.each, lists=request.lists)

        return Call(asked, keys["meta"], arguments)

    async def _sent_back(self, request: Request, reply: list[Any]) -> bool:
        """Whether the request must be repeated, after doing what the guard asked for."""
        match reply[0]:
            case "NO_FLEET":
                await self._fleet_script("init", request.partition, {})
            case "EPOCH":
                await self._new_server(request.partition, reply[1].decode())
            case "LAYOUT":
                self._mismatch(reply)
            case _:
                return False
        return True

    async def _new_server(self, partition: Slot, stored: str) -> None:
        replid = await self.executor.replication_id(partition.named("meta"))
        if replid != stored:
            await self._fleet_script("raise_epoch", partition, {"expected": stored})

    async def _fleet_script(self, name: str, partition: Slot, args: Mapping[str, Value]) -> None:
        reply = await self.executor.run(self._call(Request(name, partition, {}, args)))
        if reply[0] == "LAYOUT":
            self._mismatch(reply)

    def _mismatch(self, reply: list[Any]) -> None:
        raise PartitionMismatch(
            prefix=self.keys.prefix, fleet=int(reply[1]), asked=self.keys.partitions
        )

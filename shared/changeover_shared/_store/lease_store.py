"""The worker's side of the store: peek, claim, renew, append, commit, give up, evict.

A worker never gives up on Redis: a call whose reply was lost is repeated with the same ids until
it is answered, and every script answers the repeat like the first. `renew` is the exception: it
is tried once, because the keeper decides when to try again.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from functools import partial
from typing import Any, TypeVar

from redis.exceptions import ResponseError

from changeover_shared._errors import ServerUnfit, StoreUnavailable
from changeover_shared._events import Event
from changeover_shared._items import AnyItem
from changeover_shared._policies import AnyPolicy, write_policy
from changeover_shared._results import TranscriptItem, TurnRecord, WorkerInfo
from changeover_shared._server.foreign_errors import MemoryFull
from changeover_shared._settings import Settings
from changeover_shared._store import decode, requests
from changeover_shared._store.census import Census
from changeover_shared._store.clock import ServerClock, time_ms
from changeover_shared._store.eviction import Eviction
from changeover_shared._store.executor import Executor
from changeover_shared._store.fleet import Fleet, OnReply
from changeover_shared._store.keys import Keys
from changeover_shared._store.limits import Difference, longest_lease_ms
from changeover_shared._store.orders import Orders
from changeover_shared._store.payloads import SessionPayloads
from changeover_shared._store.permits import counted_in
from changeover_shared._store.records import (
    Admission,
    Appended,
    Asked,
    BatchGap,
    Bucket,
    Caps,
    ClaimRefused,
    Commit,
    CommitRefused,
    Committed,
    Crowd,
    Grant,
    Head,
    InboxEntry,
    Lease,
    Memory,
    Order,
    Peeked,
    Permit,
    Permitted,
    Renewed,
    Server,
    Work,
)
from changeover_shared._store.replication import facts_in
from changeover_shared._store.requests import Request
from changeover_shared._store.store import Store
from changeover_shared._units import milliseconds
from changeover_shared._words import GiveUp, Status

T = TypeVar("T")

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0
ATTEMPT_S = 5.0
JOIN_PAUSES_S = (0.1, 0.4, 1.0)
CALLED = ("", -1)
"""What a wait for a bell answers when there is an order."""
PROMISING = ("maxmemory-policy", "appendonly", "appendfsync", "maxmemory")
"""The settings of a server that the promises depend on."""


class Duty(Enum):
    """What a worker does for the fleet beside running sessions."""

    NONE = "none"
    LEADER = "leader"
    """It sweeps."""
    DEPUTY = "deputy"
    """It is there when the leader is not."""


class LeaseStore:
    """What a worker may do. Safe to share within one event loop."""

    def __init__(self, fleet: Fleet) -> None:
        self.settings = fleet.settings
        self._fleet = fleet
        self.producer = Store(fleet)
        """What a producer may do, over the same connections: what a worker submits itself."""
        self._eviction = Eviction(fleet)
        self._orders = Orders(fleet)
        self.census = Census(fleet)
        """How the fleet stands."""
        self._lost = False
        self._changes = 0
        self.on_lost: Callable[[str], None] = lambda reason: None
        """Called when Redis stops answering, with the reason."""
        self.on_back: Callable[[bool], None] = lambda another: None
        """Called when it answers again: whether it is another server, or was restarted."""

    @classmethod
    async def open(cls, url: str, settings: Settings, *, name: str = "") -> LeaseStore:
        """Connect and join the fleet. Raises `SetupError`, `Invalid`, and `StoreUnavailable` when
        a few attempts have failed."""
        executor = await Executor.connect(url, name=name, timeout_s=ATTEMPT_S)
        try:
            return cls(await _joined(executor, settings))
        except BaseException:
            await executor.aclose()
            raise

    @property
    def keys(self) -> Keys:
        """The fleet's keys."""
        return self._fleet.keys

    @property
    def differences(self) -> tuple[Difference, ...]:
        """Limits that this process was told and that its fleet does not have."""
        return self._fleet.differences

    @property
    def clock(self) -> ServerClock:
        """Redis's time, estimated from replies."""
        return self._fleet.clock

    @property
    def executor(self) -> Executor:
        """The seam to Redis, for reads that have no function here."""
        return self._fleet.executor

    def tell_replies(self, on_reply: OnReply) -> None:
        """Have every script's reply told."""
        self._fleet.on_reply = on_reply

    async def aclose(self) -> None:
        """Close every connection."""
        await self._fleet.executor.aclose()

    async def peek(
        self,
        partition: int,
        routes: Sequence[str],
        *,
        window: int,
        solo: bool = False,
        sums: bool = False,
    ) -> Peeked:
        """Look at a partition's indexes, and with `sums` at how many submissions wait. Grants
        nothing."""
        request = requests.peek(
            self.keys.all[partition],
            routes,
            window=window,
            max_ttl_ms=self._max_ttl_ms,
            solo=solo,
            sums=sums,
        )
        return decode.peeked(await self._until_answered(lambda: self._fleet.call(request)))

    async def reap(self, partition: int, ids: Sequence[str]) -> tuple[str, ...]:
        """Place sessions whose lease or due time has passed; the routes that became ready."""
        return await self._until_answered(lambda: self._eviction.reap(partition, ids))

    async def claim(
        self,
        partition: int,
        route: str,
        ids: Sequence[str],
        *,
        incarnation: str,
        nonce: str,
        ttl_ms: int,
        max_step_ms: int,
        solo: bool = False,
        max_attempts: int = 5,
        not_after_ms: int,
    ) -> tuple[Grant | ClaimRefused, ...]:
        """Ask for named sessions; one answer each, in order.

        A repeat with the same nonce finds its own grants. Raises `StoreUnavailable` when no
        answer came until the last grant it could have made has run out.
        """
        request = requests.claim(
            self.keys.all[partition],
            route,
            ids,
            incarnation=incarnation,
            nonce=nonce,
            ttl_ms=ttl_ms,
            max_step_ms=max_step_ms,
            solo=solo,
            max_attempts=max_attempts,
            not_after_ms=not_after_ms,
            no_progress_ms=self._no_progress_ms,
        )
        give_up_at = time.monotonic() + (not_after_ms - self.clock.now_ms() + ttl_ms) / 1000
        reply = await self._until_answered(lambda: self._fleet.call(request), give_up_at)
        return tuple(
            decode.claimed(answer, self._payloads(session_id), incarnation, nonce)
            for session_id, answer in zip(ids, reply[1], strict=True)
        )

    async def renew(
        self, partition: int, leases: Sequence[Lease], *, ttl_ms: int
    ) -> tuple[Renewed, ...]:
        """Extend leases of one partition, in one attempt. Raises `StoreUnavailable`."""
        reply = await self._once(
            self._fleet.call(requests.renew(self.keys.all[partition], leases, ttl_ms=ttl_ms))
        )
        return decode.renewed(reply[1], leases)

    async def permit(
        self, asked: Sequence[Permit], caps: Caps, *, span_ms: int
    ) -> tuple[Permitted, ...]:
        """Let sessions run for `span_ms` from now on, or say what runs as many as it may; one
        answer each. A repeat extends what the first has permitted. Raises `StoreUnavailable`."""
        request = requests.permit(self.keys, asked, caps, span_ms=span_ms)
        reply = await self._once(self._fleet.call(request))
        return decode.permitted(reply[1])

    async def give_back(self, given: Sequence[Permit], caps: Caps) -> None:
        """End permits. A hint: one that is not given back ends by itself; never raises."""
        commands = [
            ("ZREM", key, f"{one.session_id}|{one.nonce}")
            for one in given
            for _, key in counted_in(self.keys, one, caps)
        ]
        if commands:
            with suppress(StoreUnavailable, ServerUnfit):
                await self._fleet.executor.commands(commands)

    async def ask_limit(self, asked: Asked, *, span_ms: int, longest_ms: int) -> Admission:
        """Let a model be asked within its limits, or say how long not yet. A repeat of the same
        request takes nothing twice; what is taken ends by itself after `span_ms`, unless it is
        extended. Nobody is given a time further ahead than `longest_ms`."""
        request = requests.ask_limit(self.keys, asked, span_ms=span_ms, longest_ms=longest_ms)
        return decode.admission(await self._until_answered(lambda: self._fleet.call(request)))

    async def extend_limit(
        self, buckets: Sequence[Bucket], running: Sequence[str], *, span_ms: int
    ) -> None:
        """Let requests run on. A hint, tried once: never raises."""
        await self._hint(requests.extend_limit(self.keys, buckets, running, span_ms=span_ms))

    async def settle_limit(self, asked: Asked, *, tokens: int, took_ms: int) -> None:
        """Say that a request has ended and what it came to. A hint, as all that follows: what is
        lost of it ends by itself; never raises."""
        await self._hint(requests.settle_limit(self.keys, asked, tokens=tokens, took_ms=took_ms))

    async def refund_limit(self, asked: Asked) -> None:
        """Say that a request that was let through has not been sent."""
        await self._hint(requests.refund_limit(self.keys, asked))

    async def leave_limit(self, asked: Asked) -> None:
        """Give a place back."""
        await self._hint(requests.leave_limit(self.keys, asked))

    async def hold_limit(self, bucket: Bucket, request: str, *, span_ms: int) -> None:
        """Let nobody in the fleet ask a model for a while, for that is what `request` was told."""
        await self._hint(requests.hold_limit(self.keys, bucket, request, span_ms=span_ms))

    async def _hint(self, request: Request) -> None:
        with suppress(StoreUnavailable, ServerUnfit):
            await self._fleet.call(request)

    async def tenants(self, partition: int, ids: Sequence[str]) -> tuple[str, ...]:
        """The tenants of sessions; '' for none."""
        at = self.keys.all[partition]
        heads = [("HGET", at.session(session_id, "head"), "tenant") for session_id in ids]
        found = await self._until_answered(lambda: self._fleet.executor.commands(heads))
        return tuple(tenant.decode() if tenant else "" for tenant in found)

    async def defer(self, session_id: str, route: str, *, span_ms: int, reason: str) -> None:
        """Keep a ready session from being offered for a while: `reason` is at its limit."""
        request = requests.defer(self.keys, session_id, route=route, span_ms=span_ms, reason=reason)
        await self._until_answered(lambda: self._fleet.call(request))

    async def append(self, lease: Lease, batch_no: int, events: Sequence[Event]) -> Appended:
        """Add events under the lease; `batch_no` counts 1, 2, 3 ... within one grant.

        Raises `LeaseError`, and `BatchGap` when the store has forgotten batches of this grant.
        """
        request = requests.append(
            self.keys,
            lease,
            batch_no=batch_no,
            events=events,
            cap=self.settings.journal_events,
        )
        reply = await self._until_answered(lambda: self._fleet.call(request))
        if error := decode.lease_error(reply, lease.session_id, lease.fence):
            raise error
        if reply[0] == "GAP":
            raise BatchGap(int(reply[1]))
        return decode.appended(reply)

    async def commit(self, lease: Lease, commit: Commit) -> Committed | CommitRefused:
        """Change everything that one step changes, together or not at all.

        Raises `LeaseError`: then nothing was written and this holder must stop.
        """
        request = requests.commit(self.keys, lease, commit, no_progress_ms=self._no_progress_ms)
        reply = await self._until_answered(
            lambda: self._safe_call(request) if commit.durable else self._fleet.call(request)
        )
        if error := decode.lease_error(reply, lease.session_id, lease.fence):
            raise error
        answer = decode.committed(reply)
        if isinstance(answer, Committed) and answer.status is Status.READY:
            await self._ring_for(lease)
        return answer

    async def give_up(self, lease: Lease, reason: GiveUp) -> bool:
        """Give a session up outside a commit; False when it was not this holder's any more."""
        request = requests.give_up(self.keys, lease, reason)
        reply = await self._until_answered(lambda: self._fleet.call(request))
        if reply[0] != "OK":
            return False
        if reply[1] == b"ready":
            await self._ring_for(lease)
        return True

    async def evict(self, incarnation: str, *, why: str = "") -> int:
        """End all leases of one incarnation now; how many there were. `why` is what is known of its
        death: people read it if one of its sessions is quarantined."""
        return await self._until_answered(lambda: self._eviction.evict(incarnation, why=why))

    async def place_overdue(self, partition: int, peeked: Peeked) -> None:
        """Place the expired and due sessions that a look has shown, and ring their routes."""
        for route in await self.reap(partition, (*peeked.expired, *peeked.due)):
            await self.ring(route, [partition])

    async def bury(self, incarnation: str, *, why: str = "") -> int:
        """End every lease of a dead incarnation and offer its sessions at once; how many.

        Safe to repeat, and harmless if the incarnation lives: its next write is refused.
        """
        return await self._until_answered(lambda: self._eviction.bury(incarnation, why=why))

    async def read_order(self, incarnation: str) -> Order | None:
        """What an operator wants of an incarnation. Tried once; raises `StoreUnavailable`."""
        (order,) = await self._once(self._orders.read([incarnation]))
        return order

    async def answer_order(self, incarnation: str, order: Order) -> None:
        """Say what became of an order, in its place. Tried once; raises `StoreUnavailable`."""
        await self._once(self._orders.answer(incarnation, order))

    async def read_head(self, session_id: str) -> Head | None:
        """A session's head; None when there is none."""
        return decode.head(
            await self._read("HGETALL", self._key(session_id, "head")), self._payloads(session_id)
        )

    async def read_position(self, session_id: str) -> int:
        """The highest inbox position given out."""
        found = await self._read("HGET", self._key(session_id, "head"), "n")
        return int(found or 0)

    async def read_work(self, session_id: str) -> Work:
        """A session's open work."""
        return decode.work(await self._read("HGETALL", self._key(session_id, "work")))

    async def read_inbox(self, session_id: str, after_n: int = 0) -> tuple[InboxEntry, ...]:
        """Bodies of submissions above position `after_n`."""
        return decode.inbox(
            await self._read("XRANGE", self._key(session_id, "inbox"), f"({after_n}-0", "+"),
            self._payloads(session_id),
        )

    async def read_checkpoint(self, session_id: str) -> bytes | None:
        """The newest checkpoint, whatever its size."""
        key = self._key(session_id, "checkpoint")
        newest = await self._read("XREVRANGE", key, "+", "-", "COUNT", 1)
        return decode.checkpoint(newest, self._payloads(session_id))

    async def read_context(self, session_id: str, epoch: int) -> bytes | None:
        """The rewritten prefix of a context epoch; None when there is none."""
        key = self.keys.of(session_id).context(session_id, epoch)
        found: bytes | None = await self._read("GET", key)
        return None if found is None else self._payloads(session_id).open("prefix", found)

    async def read_transcript(self, session_id: str, from_n: int = 1) -> tuple[TranscriptItem, ...]:
        """Transcript items from number `from_n` on."""
        return decode.transcript(
            await self._read("XRANGE", self._key(session_id, "transcript"), f"{from_n}-0", "+"),
            self._payloads(session_id),
        )

    async def read_item(self, session_id: str, n: int) -> AnyItem | None:
        """One transcript item; None when there is none."""
        key = self._key(session_id, "transcript")
        raw = await self._read("XRANGE", key, f"{n}-0", f"{n}-0")
        found = decode.transcript(raw, self._payloads(session_id))
        return found[0].item if found else None

    async def read_turn(self, session_id: str, number: int) -> TurnRecord | None:
        """The record of a turn, by its number; None when it has none."""
        key = self._key(session_id, "turns")
        raw = await self._read("XRANGE", key, f"{number}-0", f"{number}-0")
        found = decode.turn_records(raw, self._payloads(session_id))
        return found[0][1] if found else None

    async def trim(
        self, session_id: str, *, events: int, records: int, items_from: int = 0
    ) -> None:
        """Keep so many events and turn records of a session, and its transcript from an item on;
        the newest turn, and what the context needs, stay whole."""
        request = requests.trim(
            self.keys, session_id, events=events, records=records, items_from=items_from
        )
        await self._until_answered(lambda: self._fleet.call(request))

    async def ring(self, route: str, partitions: Sequence[int]) -> None:
        """Wake a worker of the route for these partitions. A hint: never raises."""
        await self._fleet.ring([(route, partition) for partition in partitions])

    async def rung(self, route: str) -> int:
        """How many partitions wait for somebody to look. Raises `StoreUnavailable`."""
        asked = self._fleet.executor.command("ZCARD", self.keys.bell(route))
        return int(await self._once(asked))

    async def wait_bell(
        self, routes: Sequence[str], timeout_s: float, *, called: str = ""
    ) -> tuple[str, int] | None:
        """Wait for a ring: (route, partition), or None when the time is over. With `called`, that
        incarnation's own call ends the wait as well, as `CALLED`.

        Raises `StoreUnavailable`.
        """
        # The first key that has something wins, so the order changes from call to call.
        bells = {self.keys.bell(route): route for route in random.sample(routes, len(routes))}
        call = (self.keys.call(called),) if called else ()
        found = await self._once(
            self._fleet.executor.blocking(
                "BZPOPMIN", *call, *bells, f"{timeout_s:.3f}", block_s=timeout_s
            )
        )
        if not found:
            return None
        route = bells.get(found[0].decode())
        return CALLED if route is None else (route, int(found[1]))

    async def read_alarms(self) -> dict[int, int]:
        """Partitions with a control that waits for a holder, and when each was told last.

        Tried once. Raises `StoreUnavailable`.
        """
        asked = self._fleet.executor.command("ZRANGE", self.keys.alarm, 0, -1, "WITHSCORES")
        flat = await self._once(asked)
        return {int(member): int(float(score)) for member, score in decode.pairs(flat)}

    async def register(self, incarnation: str, info: WorkerInfo) -> None:
        """Say what this incarnation is, for people. Raises `StoreUnavailable`."""
        await self._once(
            self._fleet.executor.command(
                "HSET", self.keys.workers, incarnation, info.model_dump_json()
            )
        )

    async def tell_policies(self, policies: Mapping[str, AnyPolicy]) -> None:
        """Say what agents want of messages that name no policy; the newest word counts.

        Raises `StoreUnavailable`.
        """
        entries = [
            part
            for agent, policy in policies.items()
            for part in (agent, json.dumps({"policy": write_policy(policy)}))
        ]
        if entries:
            await self._once(self._fleet.executor.command("HSET", self.keys.agents, *entries))

    async def unregister(self, incarnation: str) -> None:
        """Take the entry of an incarnation away. Raises `StoreUnavailable`."""
        await self._once(self._fleet.executor.command("HDEL", self.keys.workers, incarnation))

    async def registered(self) -> frozenset[str]:
        """Every registered incarnation. Tried once; raises `StoreUnavailable`."""
        found = await self._once(self._fleet.executor.command("HKEYS", self.keys.workers))
        return frozenset(one.decode() for one in found)

    async def renewed_at(self, incarnation: str) -> int | None:
        """When an incarnation registered last, on Redis's clock, in milliseconds; None when it is
        not registered. Tried once; raises `StoreUnavailable`."""
        asked = self._fleet.executor.command("HGET", self.keys.workers, incarnation)
        said = await self._once(asked)
        return None if said is None else decode.renewed_at_ms(said)

    async def registry(self) -> tuple[WorkerInfo, ...]:
        """What every registered incarnation last said of itself."""
        flat = await self._read("HGETALL", self.keys.workers)
        return decode.workers(flat)

    async def take_duty(self, incarnation: str, *, ttl_ms: int) -> Duty:
        """Lead the sweep for `ttl_ms` more if nobody else does, or else be its deputy.

        Raises `StoreUnavailable`.
        """
        keys = self.keys
        asked = self._fleet.executor.command("MGET", keys.sweep, keys.deputy)
        leader, deputy = await self._once(asked)
        me = incarnation.encode()
        if leader in (None, me):
            return Duty.LEADER if await self._hold(keys.sweep, me, leader, ttl_ms) else Duty.NONE
        if deputy in (None, me):
            # With a full memory there may be no deputy.
            with suppress(MemoryFull):
                if await self._hold(keys.deputy, me, deputy, ttl_ms):
                    return Duty.DEPUTY
        return Duty.NONE

    async def resign(self, incarnation: str) -> None:
        """Let somebody else lead the sweep, or be its deputy, at once. Raises `StoreUnavailable`.

        Not atomic: at worst it ends a lead that has just begun, whose holder renews it.
        """
        held = (self.keys.sweep, self.keys.deputy)
        found = await self._once(self._fleet.executor.command("MGET", *held))
        for key, holder in zip(held, found, strict=True):
            if holder == incarnation.encode():
                await self._once(self._fleet.executor.command("DEL", key))

    async def read_time(self) -> int:
        """Redis's time in milliseconds, asked for now. Raises `StoreUnavailable`."""
        return time_ms(await self._once(self._fleet.executor.command("TIME")))

    async def memory(self, *, within_s: float) -> dict[str, Memory]:
        """What each primary uses of what it may use, by its name; nothing where there is no INFO,
        and nothing of one that does not answer within `within_s`.

        Asked once; raises `StoreUnavailable`.
        """
        if self._fleet.executor.plain_scripts:
            return {}
        asked = self._fleet.executor.on_each_primary("INFO", "memory", within_s=within_s)
        found = await self._once(asked)
        return {
            name: decode.memory(info)
            for name, info in found.items()
            if not isinstance(info, Exception)
        }

    async def primary_of(self, partition: int) -> str:
        """The name of the primary that has a partition. Raises `StoreUnavailable`."""
        return await self._once(self._fleet.executor.primary_of(self.keys.all[partition].tag))

    async def say_pressure(
        self, partitions: Sequence[int], memory: Memory | None, *, span_ms: int
    ) -> None:
        """Let sessions of these partitions take no message for `span_ms`, because memory is short;
        None: let them take messages again."""
        asked = [
            requests.pressure(self.keys.all[one], memory, span_ms=span_ms) for one in partitions
        ]
        await asyncio.gather(
            *(self._until_answered(partial(self._fleet.call, request)) for request in asked)
        )

    async def say_full(self, partition: int, crowded: Sequence[Crowd], *, span_ms: int) -> None:
        """Let sessions of a partition take no message for `span_ms` if they are of one of these;
        let all others take messages again."""
        request = requests.full(self.keys.all[partition], crowded, span_ms=span_ms)
        await self._until_answered(partial(self._fleet.call, request))

    async def servers(self) -> tuple[Server, ...]:
        """Every primary, or any one while another does not answer; none where there is no INFO."""
        executor = self._fleet.executor
        if executor.plain_scripts:
            return ()
        times: dict[str, Any] = {}
        configs: dict[str, Any] = {}
        asked_at = time.time()
        try:
            times = await executor.on_every_primary("TIME")
            mine_ms = round((asked_at + time.time()) * 500)
            infos = await executor.on_every_primary("INFO")
        except (StoreUnavailable, ServerUnfit):
            mine_ms, times = 0, {}
            infos = {executor.where: await self._read("INFO")}
        # Managed servers forbid CONFIG; the check says what it could not see.
        with suppress(StoreUnavailable, ServerUnfit, ResponseError):
            configs = await executor.on_every_primary("CONFIG", "GET", *PROMISING)
        return tuple(
            Server(
                name=name,
                info=facts_in(info),
                config={
                    key.decode(): value.decode()
                    for key, value in decode.pairs(configs.get(name, ()))
                },
                skew_ms=mine_ms - time_ms(times[name]) if name in times else 0,
            )
            for name, info in infos.items()
        )

    def _key(self, session_id: str, name: str) -> str:
        return self.keys.of(session_id).session(session_id, name)

    def _payloads(self, session_id: str) -> SessionPayloads:
        return self._fleet.payloads.of(session_id)

    async def _ring_for(self, lease: Lease) -> None:
        await self.ring(lease.route, [self.keys.of(lease.session_id).partition])

    @property
    def _max_ttl_ms(self) -> int:
        return longest_lease_ms(self.settings)

    @property
    def _no_progress_ms(self) -> int:
        """For how long a session may be held without progress; 0 for ever."""
        limit = self.settings.no_progress_timeout
        return 0 if limit is None else max(1, milliseconds(limit))

    async def _read(self, *args: str | int) -> Any:
        return await self._until_answered(lambda: self._fleet.executor.command(*args))

    async def _safe_call(self, request: Request) -> list[Any]:
        """Run a script until what it answers is as safe as this process was told.

        The repeat is answered like the first; after a failover that forgot it, it says so. Raises
        `StoreUnavailable`.
        """
        durability = self.settings.durability
        marks = await self._fleet.marks([request.partition])
        reply = await self._fleet.call(request)
        while True:
            (found,) = (await self._fleet.confirm(marks, durability)).values()
            if not found.same_history:
                raise StoreUnavailable(reason="its server was replaced meanwhile")
            if found.enough:
                return reply
            self._note_lost(str(self._fleet.not_durable(durability, found)))
            await asyncio.sleep(FIRST_PAUSE_S)

    async def _hold(self, key: str, me: bytes, holder: bytes | None, ttl_ms: int) -> bool:
        """Hold a key that is one's own, or nobody's, for `ttl_ms` more."""
        if holder is None:
            asked = self._fleet.executor.command("SET", key, me, "NX", "PX", ttl_ms)
            return await self._once(asked) is not None
        # A full memory refuses SET, but not this.
        return bool(await self._once(self._fleet.executor.command("PEXPIRE", key, ttl_ms)))

    async def _until_answered(
        self, ask: Callable[[], Awaitable[T]], give_up_at: float | None = None
    ) -> T:
        """Ask again, with growing jittered pauses, until Redis answers."""
        pause = FIRST_PAUSE_S
        while True:
            try:
                answer = await ask()
            except (StoreUnavailable, ServerUnfit) as error:
                # Once a worker runs, a server that refuses it is an outage like any other: the
                # password that was rotated or the right that was taken may come back.
                self._note_lost(_as_outage(error).reason)
                if give_up_at is not None and time.monotonic() >= give_up_at:
                    raise _as_outage(error) from error
            else:
                self._note_back()
                return answer
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(LONGEST_PAUSE_S, pause * 2)

    async def _once(self, answer: Awaitable[T]) -> T:
        """Await one attempt; whatever the server refuses is an outage here."""
        try:
            return await answer
        except ServerUnfit as error:
            raise _as_outage(error) from error

    def _note_lost(self, reason: str) -> None:
        if not self._lost:
            self._lost = True
            self.on_lost(reason)

    def _note_back(self) -> None:
        if self._lost:
            self._lost = False
            changes = self._fleet.executor.changes
            self.on_back(changes != self._changes)
            self._changes = changes


async def _joined(executor: Executor, settings: Settings) -> Fleet:
    """Join the fleet; a connection that is cut meanwhile is tried again a few times."""
    for pause in JOIN_PAUSES_S:
        try:
            return await Fleet.join(executor, settings)
        except StoreUnavailable:
            await asyncio.sleep(pause)
    return await Fleet.join(executor, settings)


def _as_outage(error: StoreUnavailable | ServerUnfit) -> StoreUnavailable:
    if isinstance(error, StoreUnavailable):
        return error
    return StoreUnavailable(reason=str(error))

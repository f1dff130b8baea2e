"""The lease keeper: a thread, a loop and a connection of its own, so nothing starves renewal.

Terms. A lease is one grant of one session to one incarnation, named by its fence and nonce.
Authority. Redis alone grants and expires it, on its own clock.
Trust. A worker believes in a lease until `trusted_until` on its monotonic clock: the start of the
attempt that was answered, plus what the answer says remains, less the margin. So a slow reply, a
frozen process or a Redis that hangs only ever shortens the trust.
Scope. Every write of a session names its lease; a write under another one changes nothing.
Failure. An attempt that is not answered is repeated soon; at `trusted_until` the session is
stopped here before anybody else can be granted it. A blocked main loop cannot delay either: the
stop is sent from this thread, and Redis refuses what the loop writes later. One that is blocked for
longer than `loop_lag_limit` has nothing renewed, until it runs again: its sessions go on elsewhere.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import groupby
from random import uniform
from typing import Any

from structlog.typing import FilteringBoundLogger

from changeover_shared._errors import (
    LeaseError,
    LeaseExpired,
    LeaseGone,
    LeaseLost,
    StoreUnavailable,
)
from changeover_shared._results import WorkerInfo
from changeover_shared._server.foreign_errors import MemoryFull
from changeover_shared._settings import Settings
from changeover_shared._store.clock import time_ms
from changeover_shared._store.lease_store import LeaseStore
from changeover_shared._store.records import Renewed
from changeover_worker._process.farewell import close
from changeover_worker._process.outage import Outage
from changeover_worker._process.permits import Permits
from changeover_worker._process.summons import Summons
from changeover_worker._process.vitals import Vitals
from changeover_worker._session.held import Held

BATCH = 200
"""The most leases that one call renews: 0.6 ms of Redis."""
ANNOUNCE_S = 0.5
"""How often a worker that drains says how far it has come."""
ALARM_S = 1.0
"""How often a worker that holds something asks whether a control waits for anybody."""

Describe = Callable[[], WorkerInfo]
"""Says what the registry should know of this worker; called from the keeper's thread."""
Deaf = Callable[[], bool]
"""Says whether nobody waits for bells any more; called from the keeper's thread."""

Beside = Callable[[LeaseStore], Coroutine[Any, Any, None]]
"""What else is done in the keeper's thread."""


def trust(asked_at: float, remaining_ms: int, margin_s: float) -> float:
    """Until when a lease is believed in, on the clock that `asked_at` was read from."""
    return asked_at + remaining_ms / 1000 - margin_s


def loss(renewed: Renewed, fence: int) -> LeaseError | None:
    """Why a renewal was refused, or None when the lease stands."""
    match renewed.word:
        case "OK":
            return None
        case "LOST":
            return LeaseLost(session_id=renewed.session_id, fence=fence, current=renewed.fence)
        case "GONE":
            return LeaseGone(session_id=renewed.session_id, fence=fence)
        case "EXPIRED":
            return LeaseExpired(session_id=renewed.session_id, fence=fence)


def batches(held: Sequence[Held]) -> Iterator[tuple[int, tuple[Held, ...]]]:
    """Cut what is held into calls: one partition each, at most 200 leases."""
    for partition, group in groupby(sorted(held, key=_partition), key=_partition):
        leases = tuple(group)
        for start in range(0, len(leases), BATCH):
            yield partition, leases[start : start + BATCH]


def _partition(held: Held) -> int:
    return held.partition


class LeaseKeeper:
    """Renews what is held and stops what can no longer be trusted."""

    def __init__(
        self,
        url: str,
        settings: Settings,
        *,
        incarnation: str,
        describe: Describe,
        outage: Outage,
        vitals: Vitals,
        permits: Permits,
        summons: Summons,
        deaf: Deaf,
        log: FilteringBoundLogger,
        beside: Sequence[Beside] = (),
    ) -> None:
        """`beside` runs on the same loop and connection, and must never return."""
        self._beside = tuple(beside)
        self._url = url
        self._settings = settings
        self._incarnation = incarnation
        self._describe = describe
        self._log = log
        self._renew_s = settings.renew.total_seconds()
        self._margin_s = settings.margin.total_seconds()
        self._ttl_ms = round(settings.lease.total_seconds() * 1000)
        self._lock = threading.Lock()
        self._held: set[Held] = set()
        self._outage = outage
        self._vitals = vitals
        self._permits = permits
        self._summons = summons
        self._deaf = deaf
        self._loop: asyncio.AbstractEventLoop | None = None
        self.registered = False
        """Whether the registry was told of this worker; may be read from any thread."""
        self._hurry = asyncio.Event()
        self._announce = asyncio.Event()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="lease-keeper", daemon=True)
        self._started: Future[None] = Future()
        self.ended: Future[None] = Future()
        """Done when the thread has ended; with an exception, when it should not have."""

    async def start(self) -> None:
        """Connect and begin; raises `SetupError` or `StoreUnavailable`."""
        self._thread.start()
        await asyncio.wrap_future(self._started)

    async def stop(self) -> None:
        """End the thread. What is still held is renewed no more."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)
        await asyncio.to_thread(self._thread.join)

    def add(self, held: Held) -> None:
        """Keep a lease from now on. From any thread."""
        with self._lock:
            self._held.add(held)
        if self._loop is not None and held.trusted_until - time.monotonic() < self._renew_s:
            self._loop.call_soon_threadsafe(self._hurry.set)

    def announce(self) -> None:
        """Register now and often from now on: something changes. From any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._announce.set)

    def remove(self, held: Held) -> bool:
        """Keep a lease no more; whether it was kept until now. From any thread."""
        with self._lock:
            kept = held in self._held
            self._held.discard(held)
        return kept

    def slack_s(self) -> float:
        """For how long the lease that ends first is still trusted, in seconds; what a fresh one
        would be if none is held. From any thread."""
        now = time.monotonic()
        fresh = now + self._ttl_ms / 1000 - self._margin_s
        return min((held.trusted_until for held in self._keeps()), default=fresh) - now

    def oldest_s(self) -> float | None:
        """For how long the session that was claimed first has been held, in seconds; None if none
        is. From any thread."""
        since = min((held.since for held in self._keeps()), default=None)
        return None if since is None else time.monotonic() - since

    def _keeps(self) -> tuple[Held, ...]:
        with self._lock:
            return tuple(self._held)

    def _lose(self, held: Held, why: LeaseError) -> None:
        if self.remove(held):
            held.lose(why)

    def _run(self) -> None:
        try:
            asyncio.run(self._keep())
        except BaseException as error:
            if not self._started.done():
                self._started.set_exception(error)
                return
            for held in self._keeps():
                self._lose(held, _untrusted(held))
            self._log.exception("warning", code="keeper_failed")
            self.ended.set_exception(error)
        else:
            self.ended.set_result(None)

    async def _keep(self) -> None:
        store = await LeaseStore.open(self._url, self._settings, name=self._incarnation)
        self._loop = asyncio.get_running_loop()
        self._started.set_result(None)
        loops = (
            asyncio.create_task(self._renewals(store)),
            asyncio.create_task(self._alarms(store)),
            asyncio.create_task(self._announcements(store)),
            asyncio.create_task(self._watch()),
            asyncio.create_task(self._vitals.watch(partial(_ping, store))),
            *(asyncio.create_task(one(store)) for one in self._beside),
        )
        stop = asyncio.create_task(self._stop.wait())
        try:
            done, _ = await asyncio.wait({*loops, stop}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (*loops, stop):
                task.cancel()
            await asyncio.gather(*loops, stop, return_exceptions=True)
            await close(store)

    async def _renewals(self, store: LeaseStore) -> None:
        while True:
            self._hurry.clear()
            answered = await self._renew_all(store)
            if answered:
                self._outage.over()
            else:
                self._outage.noticed("no answer to a renewal")
            soon = uniform(0.5, 1.0) * min(1.0, self._renew_s / 10)
            await asyncio.sleep(0.05)  # hurried or not, never more than 20 rounds a second
            await _within(self._renew_s if answered else soon, self._hurry)

    async def _alarms(self, store: LeaseStore) -> None:
        """Renew at once, and so be told of controls, where somebody says that one waits."""
        known: dict[int, int] = {}
        meetings = 0
        while True:
            await asyncio.sleep(ALARM_S)
            if not self._keeps() and not self._deaf():
                continue
            try:
                async with asyncio.timeout(self._renew_s / 2):
                    order = store.read_order(self._incarnation)
                    found, ordered = await asyncio.gather(store.read_alarms(), order)
            except (StoreUnavailable, TimeoutError):
                continue
            self._summons.heard(ordered)
            if store.executor.meetings != meetings:
                # Whoever misses the connections that were lost is told that nobody has died.
                meetings = store.executor.meetings
                await self._register(store)
            rung = {partition for partition, at in found.items() if known.get(partition) != at}
            known = found
            mine = [one for one in self._renewed_now() if one.partition in rung]
            await asyncio.gather(*(self._renew(store, *each) for each in batches(mine)))

    async def _renew_all(self, store: LeaseStore) -> bool:
        """One round: everything held and the registry's entry, in one tick; before it, permits."""
        permitted = await self._extend_permits(store)
        held = [one for one in self._renewed_now() if self._permits.lasts(one.lease)]
        answers = await asyncio.gather(
            self._register(store),
            *(self._renew(store, partition, some) for partition, some in batches(held)),
        )
        return permitted and all(answers)

    def _renewed_now(self) -> tuple[Held, ...]:
        """What is held, or nothing while the main loop is blocked: what hangs must not be kept by a
        thread that does not."""
        return () if self._vitals.loop_blocked else self._keeps()

    async def _announcements(self, store: LeaseStore) -> None:
        await self._announce.wait()
        while True:
            await self._register(store)
            await asyncio.sleep(ANNOUNCE_S)

    async def _extend_permits(self, store: LeaseStore) -> bool:
        try:
            async with asyncio.timeout(self._renew_s / 2):
                await self._permits.extend(store)
        except (StoreUnavailable, TimeoutError):
            return False
        return True

    async def _renew(self, store: LeaseStore, partition: int, held: Sequence[Held]) -> bool:
        asked_at = time.monotonic()
        try:
            async with asyncio.timeout(self._renew_s / 2):
                answers = await store.renew(
                    partition, [one.lease for one in held], ttl_ms=self._ttl_ms
                )
        except (StoreUnavailable, TimeoutError):
            return False
        for one, answer in zip(held, answers, strict=True):
            self._heed(one, answer, asked_at)
        return True

    def _heed(self, held: Held, answer: Renewed, asked_at: float) -> None:
        why = loss(answer, held.lease.fence)
        if why is not None:
            self._lose(held, why)
            return
        held.trusted_until = trust(asked_at, answer.remaining_ms, self._margin_s)
        if answer.alert:
            held.alert(answer.alert)

    async def _register(self, store: LeaseStore) -> bool:
        try:
            async with asyncio.timeout(self._renew_s / 2):
                # The clock is right: a ping has asked for the time within the last seconds.
                now_ms = store.clock.now_ms()
                info = self._describe().model_copy(update={"renewed_at_ms": now_ms})
                await store.register(self._incarnation, info)
        except MemoryFull:
            # The entry grows old; the leases are renewed all the same.
            pass
        except (StoreUnavailable, TimeoutError):
            return False
        self.registered = True
        return True

    async def _watch(self) -> None:
        """Stop each session at the end of its trust, whether or not Redis answers."""
        longest = min(1.0, max(0.05, self._margin_s / 2))
        while True:
            now = time.monotonic()
            pause = longest
            for held in self._keeps():
                left = held.trusted_until - now
                if left <= 0:
                    self._lose(held, _untrusted(held))
                else:
                    pause = min(pause, left)
            await asyncio.sleep(max(pause, 0.005))


def _untrusted(held: Held) -> LeaseExpired:
    return LeaseExpired(session_id=held.lease.session_id, fence=held.lease.fence)


async def _within(seconds: float, event: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return


async def _ping(store: LeaseStore) -> None:
    """Have every primary answer: with its time, which the registry's entry needs anyway."""
    for answer in (await store.executor.on_every_primary("TIME")).values():
        store.clock.saw(time_ms(answer))

"""The sweep: what makes a lost ring cost a second, not a session.

One worker at a time leads, for as long as it lives: the gate has a TTL of three seconds, or of one
lease if that is shorter, and the leader renews it each second. Another one is its deputy, in the
same way: both look after all the others, see `watch`. The leader visits every partition once a
second: it places sessions whose lease ran out or whose time has come, whatever their route, and
rings what is ready. It submits what schedules say is due, see `firing`, measures the server's
memory, see `headroom`, and adds up what waits, see `crowding`. When a suspect of a route that it
serves itself finds no process that holds nothing else, the leader becomes one, see `courtesy`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Iterable, Sequence
from contextlib import suppress

from structlog.typing import FilteringBoundLogger

from changeover_shared._bind import OFF
from changeover_shared._errors import StoreUnavailable
from changeover_shared._results import WorkerInfo
from changeover_shared._settings import Settings
from changeover_shared._store.keys import route_of
from changeover_shared._store.lease_store import Duty, LeaseStore
from changeover_worker._process.claim_decisions import audible, is_solo, plain
from changeover_worker._process.counting import Counting
from changeover_worker._process.courtesy import Courtesy
from changeover_worker._process.crowding import Crowding
from changeover_worker._process.firing import Firing
from changeover_worker._process.headroom import Headroom
from changeover_worker._process.silence import Silence
from changeover_worker._process.slots import Slots

GATE_MS = 3_000
ROUND_S = 1.0
VISIT_S = 1.0
"""How long the leader waits for one partition, or for the registry, before it goes on without."""
REGISTRY_S = 5.0
FORGET_MS = 3_600_000
"""A worker that has said nothing for an hour leaves the registry."""


def live_routes(
    workers: Iterable[WorkerInfo], own: Sequence[str], *, now_ms: int, silent_ms: int
) -> tuple[str, ...]:
    """The routes that somebody alive serves, the own ones among them."""
    routes = dict.fromkeys(own)
    for worker in workers:
        if now_ms - worker.renewed_at_ms < silent_ms:
            routes.update(dict.fromkeys(map(route_of, worker.queues)))
    return tuple(routes)


class Sweep:
    """Leads or waits to lead."""

    def __init__(
        self,
        store: LeaseStore,
        settings: Settings,
        *,
        incarnation: str,
        routes: Sequence[str],
        slots: Slots,
        gate: Silence,
        log: FilteringBoundLogger,
    ) -> None:
        self._store = store
        self._incarnation = incarnation
        self._own = tuple(routes)
        self._routes = tuple(routes)
        self._slots = slots
        self._gate = gate
        self._firing = Firing(store, log)
        self._headroom = Headroom(store, settings.redis_headroom, log)
        self._crowding = Crowding(
            store, tenant=settings.tenant_inbox, fleet=settings.fleet_inbox, log=log
        )
        self._counts = settings.health_bind != OFF
        """Whether anybody could be shown how the fleet stands: counting is dearer than sweeping."""
        self._counting = Counting(store, lambda: self._headroom.shares, log)
        lease_s = settings.lease.total_seconds()
        self._courtesy = Courtesy(patience_s=lease_s, room_s=2 * lease_s)
        self._gate_ms = min(GATE_MS, round(settings.lease.total_seconds() * 1000))
        self._silent_ms = round(settings.renew.total_seconds() * 3000)
        self._next = 0
        self._read_registry_at = 0.0
        self._duty = Duty.NONE

    @property
    def on_duty(self) -> bool:
        """Whether this worker leads, or is the deputy."""
        return self._duty is not Duty.NONE

    async def run(self) -> None:
        """Sweep whenever this worker leads; never returns."""
        try:
            await self._keep_sweeping()
        finally:
            self._counting.forget()

    async def _keep_sweeping(self) -> None:
        while True:
            try:
                self._duty = await self._take_duty()
                if self._duty is Duty.LEADER:
                    await self._round()
                else:
                    self._lead_no_more()
                    pause = (0.4, 0.6) if self._duty is Duty.DEPUTY else (0.8, 1.7)
                    await asyncio.sleep(random.uniform(*pause) * self._gate_ms / 1000)
            except StoreUnavailable:
                self._duty = Duty.NONE
                self._lead_no_more()
                self._gate.note(answered=False)
                await asyncio.sleep(random.uniform(0.2, 1.0))

    async def resign(self) -> None:
        """Let somebody else lead, or be the deputy, at once. Raises `StoreUnavailable`."""
        await self._store.resign(self._incarnation)

    async def _take_duty(self) -> Duty:
        try:
            async with asyncio.timeout(self._gate_ms / 1000):
                duty = await self._store.take_duty(self._incarnation, ttl_ms=self._gate_ms)
        except TimeoutError as error:
            raise StoreUnavailable(reason="the sweep's gate is silent") from error
        self._gate.note(answered=True)
        return duty

    def _lead_no_more(self) -> None:
        self._courtesy.forget()
        self._headroom.forget()
        self._crowding.forget()
        self._firing.forget()
        self._counting.forget()
        self._slots.reserve(False)

    async def _round(self) -> None:
        """Visit partitions, evenly spread, for one second."""
        await _patiently(self._read_registry())
        await self._headroom.look()
        await self._firing.look(self._store.clock.now_ms())
        if self._counts:
            self._counting.look()
        partitions = self._store.keys.partitions
        began = time.monotonic()
        for visited in range(partitions):
            await asyncio.sleep(max(0.0, began + visited * ROUND_S / partitions - time.monotonic()))
            if time.monotonic() - began > ROUND_S:
                return
            await _patiently(self._visit(self._next))
            self._next = (self._next + 1) % partitions
        await asyncio.sleep(max(0.0, began + ROUND_S - time.monotonic()))

    async def _visit(self, partition: int) -> None:
        names = audible(self._routes, empty=True)
        peeked = await self._store.peek(partition, names, window=1, sums=self._crowding.counts)
        ready = [name for name, count in zip(names, peeked.counts, strict=True) if count]
        for route in ready:
            await self._store.ring(route, [partition])
        await self._store.place_overdue(partition, peeked)
        await self._headroom.correct(partition, peeked)
        await self._crowding.saw(partition, peeked)
        suspects = any(is_solo(name) and plain(name) in self._own for name in ready)
        self._courtesy.saw(partition, waiting=suspects)
        self._slots.reserve(self._courtesy.due)

    async def _read_registry(self) -> None:
        now = time.monotonic()
        if self._read_registry_at and now - self._read_registry_at < REGISTRY_S:
            return
        self._read_registry_at = now
        workers = await self._store.registry()
        now_ms = self._store.clock.now_ms()
        self._routes = live_routes(workers, self._own, now_ms=now_ms, silent_ms=self._silent_ms)
        for worker in workers:
            if now_ms - worker.renewed_at_ms > FORGET_MS:
                await self._store.unregister(worker.incarnation)


async def _patiently(work: Awaitable[None]) -> None:
    """Do without what does not answer: where Redis is several servers, the others go on."""
    with suppress(TimeoutError):
        async with asyncio.timeout(VISIT_S):
            await work

"""The claim loop: free slots -> bell -> look -> claim one batch -> ring for the rest -> work.

It claims only what it has room for and what its routes offer, and nothing once the slots are
closed. A claim in flight is always resolved: whoever ends the loop closes the slots and awaits it.
Without a bell or a sweep for three seconds it looks into a random partition each second.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence

from structlog.typing import FilteringBoundLogger

from changeover_shared._errors import StoreUnavailable
from changeover_shared._events import SessionQuarantined
from changeover_shared._identifiers import new_nonce
from changeover_shared._settings import Settings
from changeover_shared._store.lease_store import CALLED, LeaseStore
from changeover_shared._store.records import ClaimRefused, Grant
from changeover_worker._process import claim_decisions as decide
from changeover_worker._process.outage import Outage
from changeover_worker._process.permits import Permits
from changeover_worker._process.silence import Silence
from changeover_worker._process.slots import Slots
from changeover_worker._process.summons import Summons
from changeover_worker._process.vitals import Rounds

LOOK_S = 2.0
"""How long a look into a partition may take. Where Redis is several servers, others may answer."""
NOT_AFTER_MS = 5_000
"""How long a claim may be on its way before Redis refuses to grant it."""

Begin = Callable[[Grant, float, bool], None]
"""Starts to run a grant: the grant, when it was asked for (monotonic), whether it is a suspect."""


class ClaimLoop:
    """Fills a process's free slots from the routes that it serves."""

    def __init__(
        self,
        store: LeaseStore,
        settings: Settings,
        *,
        incarnation: str,
        routes: Sequence[str],
        slots: Slots,
        gate: Silence,
        outage: Outage,
        rounds: Rounds,
        permits: Permits,
        summons: Summons,
        begin: Begin,
        log: FilteringBoundLogger,
    ) -> None:
        self._store = store
        self._settings = settings
        self._incarnation = incarnation
        self._routes = tuple(routes)
        self._slots = slots
        self._gate = gate
        self._outage = outage
        self._rounds = rounds
        self._permits = permits
        self._summons = summons
        self._bell = Silence()
        self._begin = begin
        self._log = log
        self._one_at_a_time = asyncio.Lock()
        self._lossy = False

    @property
    def busy(self) -> bool:
        """Whether a claim is being made right now."""
        return self._one_at_a_time.locked()

    @property
    def keeps_aside(self) -> bool:
        """Whether something that waits could not be claimed here, and is not offered again yet."""
        return self._permits.keeps_aside

    async def run(self) -> None:
        """Claim until the slots are closed; returns when no claim is in flight."""
        async with asyncio.TaskGroup() as group:
            roaming = group.create_task(self._roam())
            await self._follow_bells()
            async with self._one_at_a_time:
                roaming.cancel()

    async def _follow_bells(self) -> None:
        while True:
            await self._has_room()
            if self._slots.closed.is_set():
                return
            heard = await self._hear()
            if heard is not None:
                await self._take(*heard, rung=await self._rung(heard[0]))

    async def _has_room(self) -> None:
        """Wait until something may be claimed, or nothing more."""
        self._rounds.resting = not self._slots.room.is_set()
        await self._slots.room.wait()
        self._rounds.resting = self._slots.closed.is_set()

    async def _hear(self) -> tuple[str, int] | None:
        """Wait for a bell for about five seconds, or until the slots are closed."""
        seconds = decide.listen_timeout(random.uniform)
        waiting = self._store.wait_bell(self._audible(), seconds, called=self._incarnation)
        bell = asyncio.create_task(waiting)
        closed = asyncio.create_task(self._slots.closed.wait())
        limit = seconds + Silence.LIMIT_S
        try:
            await asyncio.wait({bell, closed}, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        finally:
            closed.cancel()
            bell.cancel()
        await asyncio.wait({bell})
        if bell.cancelled():
            self._bell.note(answered=self._slots.closed.is_set())
            self._summons.ring()
            return None
        return await self._heard(bell)

    async def _heard(self, bell: asyncio.Task[tuple[str, int] | None]) -> tuple[str, int] | None:
        try:
            heard = bell.result()
        except StoreUnavailable as error:
            self._bell.note(answered=False)
            self._outage.noticed(error.reason)
            # The call may have been answered, and the answer lost.
            self._summons.ring()
            await asyncio.sleep(random.uniform(0.2, 1.0))
            return None
        self._bell.note(answered=True)
        self._outage.over()
        if heard is None:
            self._rounds.finish()
        if heard == CALLED:
            self._summons.ring()
            return None
        return heard

    async def _roam(self) -> None:
        """Do without the hints while they are silent."""
        while True:
            await asyncio.sleep(random.uniform(0.8, 1.2))
            if self._slots.free and (self._bell.lasts or self._gate.lasts):
                partition = random.randrange(self._store.keys.partitions)
                routes = self._audible()
                # Suspects have their chance even when the plain routes never run dry.
                for route in random.sample(routes, len(routes)):
                    await self._take(route, partition)

    def _audible(self) -> tuple[str, ...]:
        return decide.audible(self._routes, empty=self._slots.empty, reserved=self._slots.reserved)

    async def _rung(self, route: str) -> int:
        """How many other partitions wait for somebody to look; a hint like the bell itself."""
        try:
            async with asyncio.timeout(LOOK_S):
                return await self._store.rung(route)
        except (StoreUnavailable, TimeoutError):
            return 0

    async def _take(self, route: str, partition: int, *, rung: int = 0) -> None:
        async with self._one_at_a_time:
            if not self._slots.free or not self._welcomes(route):
                await self._store.ring(route, [partition])
                return
            try:
                await self._look(route, partition, rung=rung)
            except StoreUnavailable as error:
                self._log.warning("warning", code="claim_unanswered", text=str(error))
                return
            except TimeoutError:
                return  # Nothing was claimed; the sweep rings again when the partition answers.
        self._rounds.finish()

    def _welcomes(self, route: str) -> bool:
        return self._slots.empty if decide.is_solo(route) else not self._slots.reserved

    async def _look(self, route: str, partition: int, *, rung: int = 0) -> None:
        solo = decide.is_solo(route)
        batch = 1 if solo else decide.batch_size(self._slots.free, rung)
        async with asyncio.timeout(LOOK_S):
            peeked = await self._store.peek(
                partition,
                [decide.plain(route)],
                window=decide.window_size(batch),
                solo=solo,
            )
            await self._store.place_overdue(partition, peeked)
        ids = decide.choose(peeked.ready[0], batch, lossy=self._lossy, below=random.randrange)
        if ids:
            await self._permitted(route, partition, ids, waiting=peeked.counts[0])
        elif not solo and self._slots.empty and not self._slots.closed.is_set():
            await self._look(route + decide.SOLO, partition)

    async def _permitted(
        self, route: str, partition: int, ids: Sequence[str], waiting: int
    ) -> None:
        """Claim what its tenant and its queue let run."""
        nonce, not_after_ms = new_nonce(), self._store.clock.now_ms() + NOT_AFTER_MS
        if not self._permits.needed:
            await self._claim(route, partition, ids, nonce, not_after_ms, waiting)
            return
        try:
            async with asyncio.timeout(LOOK_S):
                admitted = await self._permits.admit(
                    self._store,
                    partition,
                    decide.plain(route),
                    ids,
                    nonce=nonce,
                    uniform=random.uniform,
                )
        except (StoreUnavailable, TimeoutError):
            self._permits.forget(nonce, ids)
            raise
        waiting -= len(ids) - len(admitted.ids)
        if admitted.ids:
            not_after_ms = min(not_after_ms, admitted.not_after_ms)
            await self._claim(route, partition, admitted.ids, nonce, not_after_ms, waiting)
        elif waiting > 0:
            await self._store.ring(route, [partition])

    async def _claim(
        self,
        route: str,
        partition: int,
        ids: Sequence[str],
        nonce: str,
        not_after_ms: int,
        waiting: int,
    ) -> None:
        solo = decide.is_solo(route)
        asked_at = time.monotonic()
        try:
            answers = await self._store.claim(
                partition,
                decide.plain(route),
                ids,
                incarnation=self._incarnation,
                nonce=nonce,
                ttl_ms=round(self._settings.lease.total_seconds() * 1000),
                max_step_ms=round(self._settings.step_timeout.total_seconds() * 1000),
                solo=solo,
                max_attempts=self._settings.takeover_attempts,
                not_after_ms=not_after_ms,
            )
        except StoreUnavailable:
            self._permits.forget(nonce, ids)
            raise
        grants = [answer for answer in answers if isinstance(answer, Grant)]
        # First of all: whatever becomes of the calls below, a lease that was granted is served.
        for grant in grants:
            self._begin(grant, asked_at, solo)
        if self._permits.needed:
            refused = {*ids} - {one.lease.session_id for one in grants}
            await self._permits.give_back(self._store, nonce, sorted(refused))
        self._lossy = decide.was_lossy(len(ids), len(grants))
        if decide.should_ring(waiting, len(ids), len(grants)):
            await self._store.ring(route, [partition])
        await self._heed_refusals(route, partition, answers)

    async def _heed_refusals(
        self, route: str, partition: int, answers: Sequence[Grant | ClaimRefused]
    ) -> None:
        refused = [answer for answer in answers if isinstance(answer, ClaimRefused)]
        for one in refused:
            if one.word == "QUARANTINED":
                why = SessionQuarantined.model_validate_json(one.why)
                self._log.error(
                    "session_quarantined",
                    session=one.session_id,
                    attempts=why.attempts,
                    cause=why.cause,
                    error=why.error,
                )
        if any(one.word == "SUSPECT" for one in refused):
            await self._store.ring(decide.plain(route) + decide.SOLO, [partition])

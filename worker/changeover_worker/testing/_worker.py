"""The smallest worker that is true: it looks, places, claims, renews and runs, one at a time."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

import structlog
from structlog.typing import FilteringBoundLogger

from changeover_shared._errors import StoreUnavailable
from changeover_shared._identifiers import new_incarnation, new_nonce
from changeover_shared._store.fleet import Fleet
from changeover_shared._store.keys import route_of
from changeover_shared._store.lease_store import LeaseStore
from changeover_shared._store.records import Grant
from changeover_worker._app import App
from changeover_worker._process.keeper import loss
from changeover_worker._session.held import Held
from changeover_worker._session.runner import SessionRunner
from changeover_worker.testing._cases import Case
from changeover_worker.testing._tap import Tap
from changeover_worker.testing._watched import AT_WORK
from changeover_worker.testing._world import World

WINDOW: Final = 8
NOT_AFTER_MS: Final = 5_000


class Worker:
    """One incarnation. Its session runner, lease store and writes are those of a real worker."""

    def __init__(self, world: World, app: App, name: str, case: Case | None = None) -> None:
        self.name = name
        self.incarnation = new_incarnation(name)
        self.tap = Tap(world, case)
        self.leaving = False
        """It takes nothing more once what it runs has ended."""
        self._world = world
        self._app = app
        self._routes = [route_of(agent) for agent in app.agents]
        self._renewal = asyncio.Event()
        self._held: Held | None = None
        self._store: LeaseStore
        self._runner: SessionRunner

    async def serve(self) -> None:
        """Work until the scenario is over and nothing is left to do."""
        AT_WORK.set(self.tap)
        executor = await self._world.connect()
        self._store = LeaseStore(await Fleet.join(executor, self._world.settings))
        executor.attach(self.tap, self._world)
        async with self._app.lifespan() as resources:
            self._runner = SessionRunner(
                self._app, self._store, self._world.settings, _silent(), resources=resources
            )
            while await self._has_work():
                await self._take()

    def drain(self) -> None:
        """Hand off what it runs at the next step boundary, and take nothing more."""
        self.leaving = True
        if self._held is not None:
            self._held.drain()

    def renew(self) -> None:
        """Have the lease renewed now, which also tells of interrupts."""
        self._renewal.set()

    async def _has_work(self) -> bool:
        while not self.leaving:
            change = self._world.next_change
            await self._world.turn_of()
            if await self._world.anything_to_do(self._routes) or await self._world.skip_ahead():
                return not self.leaving
            if self._world.scenario_over:
                return False
            await change.wait()
        return False

    async def _take(self) -> None:
        peeked = await self._store.peek(0, self._routes, window=WINDOW)
        await self._store.place_overdue(0, peeked)
        for route, ready in zip(self._routes, peeked.ready, strict=True):
            for session_id in ready[:1]:
                await self._claim(route, session_id)

    async def _claim(self, route: str, session_id: str) -> None:
        settings = self._world.settings
        try:
            (answer,) = await self._store.claim(
                0,
                route,
                [session_id],
                incarnation=self.incarnation,
                nonce=new_nonce(),
                ttl_ms=round(settings.lease.total_seconds() * 1000),
                max_step_ms=round(settings.step_timeout.total_seconds() * 1000),
                not_after_ms=self._store.clock.now_ms() + NOT_AFTER_MS,
            )
        except StoreUnavailable:
            return
        if isinstance(answer, Grant):
            await self._run(answer)

    async def _run(self, grant: Grant) -> None:
        ttl_s = self._world.settings.lease.total_seconds()
        held = self._held = Held(grant.lease, 0, trusted_until=time.monotonic() + ttl_s)
        await self._renewed(held)
        keeper = asyncio.create_task(self._keep(held))
        try:
            end = await self._runner.run(grant, held)
        finally:
            self._held = None
            keeper.cancel()
            await asyncio.wait({keeper})
        if end.how == "crashed" and end.error is not None:
            raise end.error

    async def _keep(self, held: Held) -> None:
        while True:
            await self._renewal.wait()
            self._renewal.clear()
            await self._renewed(held)

    async def _renewed(self, held: Held) -> None:
        """One renewal; tried again until it is answered, as a keeper does."""
        ttl_ms = round(self._world.settings.lease.total_seconds() * 1000)
        while True:
            try:
                (renewed,) = await self._store.renew(0, [held.lease], ttl_ms=ttl_ms)
            except StoreUnavailable:
                continue
            break
        if why := loss(renewed, held.lease.fence):
            held.lose(why)
        elif renewed.alert:
            held.alert(renewed.alert)


def _silent() -> FilteringBoundLogger:
    log: FilteringBoundLogger = structlog.wrap_logger(
        structlog.ReturnLogger(),
        processors=[],
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL),
    )
    return log

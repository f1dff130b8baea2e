"""A worker: one process, one incarnation, many sessions."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from asyncio import FIRST_COMPLETED
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Any

from structlog.typing import FilteringBoundLogger

from changeover_shared._bind import OFF
from changeover_shared._errors import ChangeoverError, Invalid
from changeover_shared._identifiers import new_incarnation, worker_of
from changeover_shared._results import Draining, WorkerInfo
from changeover_shared._server.foreign_errors import MemoryFull
from changeover_shared._settings import Settings
from changeover_shared._store.keys import route_of
from changeover_shared._store.lease_store import LeaseStore
from changeover_shared._store.records import Order
from changeover_worker._app import App
from changeover_worker._process.activity import Activity
from changeover_worker._process.balance import Balance
from changeover_worker._process.burst import Burst
from changeover_worker._process.claims import ClaimLoop
from changeover_worker._process.farewell import FAREWELL_S, close
from changeover_worker._process.keeper import Beside, LeaseKeeper
from changeover_worker._process.liveness import Verdict
from changeover_worker._process.log import make_log
from changeover_worker._process.meters import Meters
from changeover_worker._process.name import default_name
from changeover_worker._process.outage import Outage
from changeover_worker._process.permits import Permits
from changeover_worker._process.probes import answering
from changeover_worker._process.reports import Reports
from changeover_worker._process.resources import resources_of
from changeover_worker._process.server import checked_server
from changeover_worker._process.service import ServiceManager, Standing
from changeover_worker._process.sessions import Sessions
from changeover_worker._process.silence import Silence
from changeover_worker._process.slots import Slots
from changeover_worker._process.summons import Summons
from changeover_worker._process.sweep import Sweep
from changeover_worker._process.vitals import Vitals
from changeover_worker._process.watch import Watch
from changeover_worker._process.watchers import watcher_of
from changeover_worker._session.runner import SessionRunner

LAST_S = 5.0
"""How long a forced hand-off may take before the sessions are left to an eviction."""


@dataclass(frozen=True, slots=True)
class WorkerEnd:
    """How a worker stopped."""

    forced: bool
    """It was told twice: sessions were handed off without waiting for a step boundary."""
    failed_turns: int


class Worker:
    """Runs an app's sessions until it is drained.

    `run` may be called once. `drain`, `force` and `pause` belong on the loop that runs it.
    """

    def __init__(
        self,
        app: App,
        settings: Settings,
        url: str,
        *,
        incarnation: str | None = None,
        burst: bool = False,
        log: FilteringBoundLogger | None = None,
        service: ServiceManager | None = None,
    ) -> None:
        """Check what can be checked without Redis; raises `Invalid` or `SetupError`."""
        app.check()
        self._app = app
        self._settings = settings
        self._url = url
        self.incarnation = incarnation or new_incarnation(settings.worker_name or default_name())
        self._burst = burst
        self._service = service or ServiceManager()
        self.meters = Meters()
        """What it counts. From any thread."""
        self._log = self.meters.log.hearing(log or make_log(settings))
        app.log_to(self._log)
        self._queues = settings.queues or tuple(app.agents)
        if not self._queues:
            raise Invalid(
                field="queues",
                reason="the app has no agents and no queue was named, so there is nothing to serve",
                unchanged="nothing was started",
            )
        self._routes = tuple(map(route_of, self._queues))
        self._slots = Slots(settings.concurrency)
        self._gate = Silence()
        self._permits = Permits(settings)
        self._activity = Activity()
        self._outage = Outage(self._log)
        self._vitals = Vitals(lag_limit_s=settings.loop_lag_limit.total_seconds(), log=self._log)
        self.on_order: Callable[[float], None] = lambda grace_s: None
        """Called when an operator orders it to stop, with the grace in seconds."""
        self._drain_reason = ""
        self._drain_asked = asyncio.Event()
        self._grace_over = asyncio.Event()
        self._forced = asyncio.Event()
        self._said_here = False
        """Whether it was told to stop by something else than an order."""
        self._grace_s = settings.drain_grace.total_seconds()
        self._draining: Draining | None = None
        self._sessions_left: Callable[[], int] = lambda: 0
        self._sees_connections: Callable[[], bool] = lambda: True
        self._started_at_ms = 0
        self._ready = False
        self._now_ms: Callable[[], int] = lambda: 0
        self._fatal: BaseException | None = None
        self._background: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> WorkerEnd:
        """Serve until drained; raises `SetupError` or `StoreUnavailable` before it has begun."""
        summons = Summons(self.incarnation, self._heed)
        keeper = self._make_keeper(summons)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._answering(keeper))
            store = await LeaseStore.open(self._url, self._settings, name=self.incarnation)
            stack.push_async_callback(close, store)
            store.on_lost, store.on_back = self._outage.noticed, self._outage.over
            store.tell_replies(self.meters.store.replied)
            self._started_at_ms = store.clock.now_ms()
            self._now_ms = store.clock.now_ms
            self._log_start(await checked_server(store, self._log))
            stack.push_async_callback(self._app.aclose)
            await self._tell_policies(store)
            resources = await stack.enter_async_context(resources_of(self._app, self._log))
            await stack.enter_async_context(self._vitals.beating())
            await keeper.start()
            sweep = Sweep(
                store,
                self._settings,
                incarnation=self.incarnation,
                routes=self._routes,
                slots=self._slots,
                gate=self._gate,
                log=self._log,
            )
            stack.push_async_callback(self._say_farewell, store, sweep, summons)
            stack.push_async_callback(keeper.stop)
            sessions = self._make_sessions(store, keeper, resources)
            stack.push_async_callback(self._stop_all, sessions)
            self._start_background(store, keeper, sweep, summons, sessions)
            self._log.info("worker_ready")
            self._ready = True
            await self._drain_asked.wait()
            began = time.monotonic()
            forced = await self._drain(sessions, keeper)
        self._log.info("drained", forced=forced, s=round(time.monotonic() - began, 1))
        if self._fatal is not None:
            raise self._fatal
        return WorkerEnd(forced=self._forced.is_set(), failed_turns=sessions.failed_turns)

    def drain(self, reason: str) -> None:
        """Hand the sessions off at their next step boundary and stop; said again, at once. Saying
        so for the first time to one that drains by an order only bounds its grace anew."""
        if self._said_here:
            self._forced.set()
            return
        self._said_here = True
        self._begin_drain(reason, self._settings.drain_grace.total_seconds())

    def force(self, reason: str) -> None:
        """Hand the sessions off now and stop."""
        self._said_here = True
        self._begin_drain(reason, 0.0)
        self._forced.set()

    def liveness(self) -> Verdict:
        """What a liveness probe is told, judged once a second from a thread of its own. From any
        thread."""
        return self._vitals.verdict

    def pause(self) -> None:
        """Claim nothing more; what is held goes on."""
        self._log.warning("warning", code="paused", text="nothing more is claimed")
        self._slots.close()

    def _make_keeper(self, summons: Summons) -> LeaseKeeper:
        return LeaseKeeper(
            self._url,
            self._settings,
            incarnation=self.incarnation,
            describe=self._describe,
            outage=self._outage,
            vitals=self._vitals,
            permits=self._permits,
            summons=summons,
            deaf=self._slots.closed.is_set,
            log=self._log,
            beside=tuple(self._beside_the_keeper()),
        )

    def _beside_the_keeper(self) -> Iterator[Beside]:
        if self._settings.health_bind != OFF:
            yield self.meters.fleet.keep_reading
        if self._service.listens:
            yield lambda store: self._service.keep_telling(self._standing)

    async def _standing(self) -> Standing:
        draining = self._progress()
        doing = f"{self._slots.count} of {self._settings.concurrency} slots taken"
        if draining is not None:
            doing = f"draining {draining.left} of {draining.sessions}"
        return Standing(
            live=self.liveness().live,
            ready=self._ready,
            doing=doing,
            draining=self._drain_asked.is_set(),
        )

    def _answering(self, keeper: LeaseKeeper) -> AbstractAsyncContextManager[None]:
        """Answer to probes, if that was asked for. Raises `BindFailed` when it is entered."""
        self.meters.look_at(
            slots=lambda: (self._slots.count, self._slots.limit),
            lag_s=self._vitals.lag_s,
            slack_s=keeper.slack_s,
        )
        reports = Reports(
            live=self.liveness,
            unready=lambda: self._unready(keeper),
            status=lambda: self._status(keeper),
            meters=self.meters,
        )
        return answering(self._settings.health_bind, reports.routes(), self._log)

    def _unready(self, keeper: LeaseKeeper) -> str:
        if self._drain_asked.is_set():
            return f"draining: {self._drain_reason}"
        if not (self._ready and keeper.registered):
            return "starting"
        away_s = self._outage.seconds()
        return "" if away_s is None else f"Redis has not answered for {away_s:.0f} s"

    def _status(self, keeper: LeaseKeeper) -> dict[str, Any]:
        oldest_s = keeper.oldest_s()
        return {
            **self._describe().model_dump(mode="json", exclude={"renewed_at_ms"}),
            "oldest_session_s": None if oldest_s is None else round(oldest_s, 1),
            "loop_lag_ms": round(self._vitals.lag_s() * 1000),
        }

    def _heed(self, order: Order) -> None:
        """Do what an operator wants."""
        if order.evicted:
            self.on_order(0.0)
            self.force("declared dead by an operator")
            return
        grace_s = self._settings.drain_grace.total_seconds()
        if order.grace_ms is not None:
            grace_s = order.grace_ms / 1000
        self.on_order(grace_s)
        self._begin_drain("an operator's order", grace_s)

    def _begin_drain(self, reason: str, grace_s: float) -> None:
        """Drain, or do so within another grace: the one that is over first counts."""
        if not self._drain_asked.is_set():
            self._drain_reason = reason
            self._grace_s = grace_s
            self._drain_asked.set()
        asyncio.get_running_loop().call_later(grace_s, self._grace_over.set)

    def _make_sessions(self, store: LeaseStore, keeper: LeaseKeeper, resources: Any) -> Sessions:
        runner = SessionRunner(
            self._app,
            store,
            self._settings,
            self._log,
            resources=resources,
            watcher=watcher_of(self.meters.sessions),
        )
        return Sessions(
            runner,
            store,
            keeper,
            self._slots,
            self._permits,
            self._activity,
            margin_s=self._settings.margin.total_seconds(),
            log=self._log,
        )

    async def _tell_policies(self, store: LeaseStore) -> None:
        """Say what agents want of messages that name no policy. Raises `StoreUnavailable`."""
        policies = {agent.name: agent.policy for agent in self._app.agents.values()}
        # With a full memory what was said before stays; there are no new messages then.
        with suppress(MemoryFull):
            await store.tell_policies(policies)

    def _start_background(
        self,
        store: LeaseStore,
        keeper: LeaseKeeper,
        sweep: Sweep,
        summons: Summons,
        sessions: Sessions,
    ) -> None:
        claims = ClaimLoop(
            store,
            self._settings,
            incarnation=self.incarnation,
            routes=self._routes,
            slots=self._slots,
            gate=self._gate,
            outage=self._outage,
            rounds=self._vitals.rounds,
            permits=self._permits,
            summons=summons,
            begin=sessions.begin,
            log=self._log,
        )
        self._start("claims", claims.run())
        self._start("sweep", sweep.run())
        self._start("summons", summons.run(store))
        watch = Watch(
            store, incarnation=self.incarnation, on_duty=lambda: sweep.on_duty, log=self._log
        )
        self._sees_connections = lambda: watch.sees
        self._start("watch", watch.run())
        balance = Balance(
            store,
            self._settings,
            sessions,
            incarnation=self.incarnation,
            routes=self._routes,
        )
        self._start("balance", balance.run())
        self._start("keeper", _until_ended(keeper))
        if self._burst:
            burst = Burst(store, self._routes, self._slots, claims)
            self._start("burst", burst.run(lambda: self.drain("burst")))

    def _start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._on_background_end)
        self._background[name] = task

    def _on_background_end(self, task: asyncio.Task[None]) -> None:
        """A part that fails takes the worker down, in order: what it holds is handed off."""
        if task.cancelled() or task.exception() is None:
            return
        self._fatal = self._fatal or task.exception()
        self._log.error(
            "warning", code="worker_failed", part=task.get_name(), exc_info=task.exception()
        )
        if not self._drain_asked.is_set():
            self.drain(f"{task.get_name()} failed")

    async def _drain(self, sessions: Sessions, keeper: LeaseKeeper) -> int:
        """Hand everything off; how many sessions did not reach a step boundary in time."""
        self._log.info(
            "drain_started",
            reason=self._drain_reason,
            grace_s=self._grace_s,
            sessions=sessions.count,
        )
        self._sessions_left = lambda: sessions.count
        self._draining = Draining(
            sessions=sessions.count,
            left=sessions.count,
            grace_ms=round(self._grace_s * 1000),
            since_ms=self._now_ms(),
        )
        self._service.stopping(f"draining {sessions.count} of {sessions.count}")
        keeper.announce()
        self._slots.close()
        sessions.drain()
        ended = asyncio.create_task(self._all_ended())
        waits = (self._forced, self._grace_over)
        others = [asyncio.create_task(event.wait()) for event in waits]
        await asyncio.wait({ended, *others}, return_when=FIRST_COMPLETED)
        for other in others:
            other.cancel()
        if ended.done():
            return 0
        left = sessions.count
        self._draining = self._draining.model_copy(update={"forced": left})
        sessions.drain_now()
        await asyncio.wait({ended}, timeout=LAST_S)
        ended.cancel()
        return left

    async def _stop_all(self, sessions: Sessions) -> None:
        for task in self._background.values():
            task.cancel()
        await asyncio.gather(*self._background.values(), return_exceptions=True)
        await sessions.cancel()

    async def _all_ended(self) -> None:
        """Wait until no claim is in flight and nothing is held."""
        await asyncio.wait({self._background["claims"]})
        await self._slots.idle.wait()

    async def _say_farewell(self, store: LeaseStore, sweep: Sweep, summons: Summons) -> None:
        try:
            async with asyncio.timeout(FAREWELL_S):
                await sweep.resign()
                left = await store.bury(self.incarnation)
                if summons.order is not None and self._draining is not None:
                    done = self._draining.model_copy(update={"left": left})
                    answer = summons.order.model_copy(update={"drained": done})
                    await store.answer_order(self.incarnation, answer)
        except (ChangeoverError, TimeoutError):
            self._log.warning(
                "warning",
                code="not_evicted",
                text="Redis did not answer; leases that are left run out by themselves",
            )

    def _progress(self) -> Draining | None:
        """How far a drain has come. From any thread."""
        draining = self._draining
        if draining is None:
            return None
        return draining.model_copy(update={"left": min(draining.sessions, self._sessions_left())})

    def _describe(self) -> WorkerInfo:
        activity, recent_ms = self._activity.told()
        return WorkerInfo(
            worker=worker_of(self.incarnation),
            incarnation=self.incarnation,
            build=self._settings.build,
            host=socket.gethostname(),
            pid=os.getpid(),
            state="draining" if self._drain_asked.is_set() else "running",
            queues=self._queues,
            agents=tuple(self._app.agents),
            slots=self._settings.concurrency,
            sessions=self._slots.count,
            started_at_ms=self._started_at_ms,
            activity=activity,
            recent_ms=recent_ms,
            draining=self._progress(),
            sees_connections=self._sees_connections(),
        )

    def _log_start(self, redis: str) -> None:
        worker, _, boot = self.incarnation.rpartition(":")
        lease, renew = (s.total_seconds() for s in (self._settings.lease, self._settings.renew))
        self._log.info(
            "worker_started",
            worker=worker,
            boot=boot,
            build=self._settings.build,
            queues=self._queues,
            slots=self._settings.concurrency,
            lease=f"{lease:g}s/{renew:g}s",
            redis=redis,
        )


async def _until_ended(keeper: LeaseKeeper) -> None:
    await asyncio.shield(asyncio.wrap_future(keeper.ended))

"""One run of a scenario: its workers one after the other, each stopped where its case says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from changeover_shared._errors import Invalid
from changeover_worker._app import App
from changeover_worker._session import signals
from changeover_worker.testing._cases import Case, How, Where
from changeover_worker.testing._checks import answered_alike, broken
from changeover_worker.testing._snapshot import changed
from changeover_worker.testing._user import User
from changeover_worker.testing._watched import Watch, watched
from changeover_worker.testing._worker import Worker
from changeover_worker.testing._world import World

Scenario = Callable[[User], Awaitable[object]]

ZOMBIE_S: Final = 0.2
"""How long a thawed worker has before its keeper tells it that the lease is gone."""

NAMES: Final = ("first", "second", "next")
"""What workers are called, by their place."""

HOLDERS_ONLY: Final = ("append", "commit", "renew")
"""The scripts that a lease which has run out lets do nothing, whether or not somebody has it."""


class Broken(Exception):
    """Promises that a run has broken."""

    def __init__(self, found: list[str]) -> None:
        """`found` has a line for each."""
        super().__init__("; ".join(found))


class Run:
    """The scenario and its workers: one for each case, and those that finish the work."""

    def __init__(
        self, world: World, scenario: Scenario, app: App, cases: tuple[Case, ...] = ()
    ) -> None:
        self._world = world
        self._scenario = scenario
        self._watch = Watch(world)
        self._app = watched(app, self._watch)
        if not app.agents:
            raise Invalid(field="app", reason="it has no agents", unchanged="no case was run")
        self._cases = cases
        self.workers: list[Worker] = []
        """In the order in which they came to work."""

    @property
    def reached(self) -> bool:
        """Whether the call of each case has come."""
        taps = [worker.tap for worker in self.workers[: len(self._cases)]]
        return len(taps) == len(self._cases) and all(tap.reached for tap in taps)

    def calls(self, place: int) -> tuple[str, ...]:
        """What the worker at a place has called."""
        return tuple(self.workers[place].tap.calls) if place < len(self.workers) else ()

    async def to_its_end(self) -> None:
        """Run, and check. Raises `Broken`."""
        async with self._played() as scenario:
            await self._work(scenario)
            await scenario
        found = await broken(self._world, self._watch)
        for case, worker in zip(self._cases, self.workers, strict=False):
            found += answered_alike(case, worker.tap.answers)
        if found:
            raise Broken(found)

    @asynccontextmanager
    async def _played(self) -> AsyncIterator[asyncio.Task[None]]:
        signals.listen(self._watch.moment)
        task = asyncio.create_task(self._play())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            signals.listen(None)

    async def _play(self) -> None:
        agents = self._app.agents
        policies = {name: agent.policy for name, agent in agents.items()}
        user = User(self._world, next(iter(agents)), lambda: self.workers[-1], policies)
        try:
            await self._scenario(user)
        finally:
            self._world.end_of_scenario()

    async def _work(self, scenario: asyncio.Task[None]) -> None:
        """Have the next worker come, and after it whoever is needed until nothing is left."""
        place = len(self.workers)
        case = self._cases[place] if place < len(self._cases) else None
        worker = Worker(self._world, self._app, NAMES[min(place, len(NAMES) - 1)], case)
        self.workers.append(worker)
        serving = asyncio.create_task(worker.serve())
        struck = asyncio.create_task(worker.tap.struck.wait())
        try:
            await _first_of(scenario, serving, struck)
            if case is not None and struck.done():
                await self._succeed(case, worker, serving, scenario)
            elif place == 0 or worker.leaving:
                await self._work(scenario)
        finally:
            for task in (serving, struck):
                task.cancel()
            await asyncio.gather(serving, struck, return_exceptions=True)

    async def _succeed(
        self,
        case: Case,
        worker: Worker,
        serving: asyncio.Task[None],
        scenario: asyncio.Task[None],
    ) -> None:
        """End or freeze a worker, and have others finish. Raises `Broken`."""
        if case.how is How.KILL:
            serving.cancel()
            await asyncio.wait({serving})
            await self._world.lease_store.evict(worker.incarnation)
        else:
            await self._world.expire(worker.incarnation)
        if case.script in HOLDERS_ONLY and worker.tap.late is not None:
            async with self._unchanged(f"the {worker.name} worker's late call"):
                await worker.tap.late()
        if (case.script, case.where) == ("claim", Where.LOST):
            # Its nonce was granted once: a copy must find nothing even while the session is ready.
            await self._world.place_overdue()
            await self._deliver_late()
        self._world.on_grant = self._deliver_late
        await self._work(scenario)
        await self._deliver_late()
        if case.how is How.FREEZE:
            await self._thaw(worker, serving)

    async def _deliver_late(self) -> None:
        """Deliver what stopped workers had in flight: it must change nothing any more."""
        for worker in self.workers:
            late, worker.tap.late = worker.tap.late, None
            if late is not None:
                async with self._unchanged(f"the {worker.name} worker's late call"):
                    await late()

    async def _thaw(self, worker: Worker, serving: asyncio.Task[None]) -> None:
        """Let a worker go on after its successor has finished: it must change nothing."""
        async with self._unchanged(f"the thawed {worker.name} worker"):
            worker.leaving = True
            worker.tap.thaw()
            await asyncio.wait({serving}, timeout=ZOMBIE_S)
            worker.renew()
            await asyncio.wait({serving})
        if error := serving.exception():
            raise Broken([f"the thawed {worker.name} worker crashed: {error!r}"])

    @asynccontextmanager
    async def _unchanged(self, who: str) -> AsyncIterator[None]:
        before = await self._world.contents()
        yield
        keys = changed(before, await self._world.contents())
        if keys:
            names = ", ".join(key.partition("}:")[2] or key for key in keys)
            raise Broken([f"G2: {who} changed {names}"])


async def _first_of(
    scenario: asyncio.Task[None], serving: asyncio.Task[None], struck: asyncio.Task[Any]
) -> None:
    """Wait for the worker to end or to be stopped, or for the scenario to fail; raises what
    failed."""
    waiting: set[asyncio.Task[Any]] = {scenario, serving, struck}
    while True:
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if scenario in done:
            scenario.result()
            waiting.discard(scenario)
        if struck in done:
            return
        if serving in done:
            serving.result()
            return

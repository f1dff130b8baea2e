"""`sweep`: a scenario, disturbed at every store call that its worker makes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from changeover_shared._errors import Invalid
from changeover_shared._settings import Settings, read_settings
from changeover_shared._units import Duration, duration
from changeover_worker._app import App
from changeover_worker._session import signals
from changeover_worker.testing._cases import Case, How, Where, chosen
from changeover_worker.testing._checks import answered_alike, broken
from changeover_worker.testing._snapshot import changed
from changeover_worker.testing._tap import Tap
from changeover_worker.testing._user import User
from changeover_worker.testing._watched import Watch, watched
from changeover_worker.testing._worker import Worker
from changeover_worker.testing._world import World, fresh_world

Scenario = Callable[[User], Awaitable[object]]

ATTEMPTS: Final = 3
"""How often a case is tried whose call does not come."""
ZOMBIE_S: Final = 0.2
"""How long a thawed worker has before its keeper tells it that the lease is gone."""


@dataclass(frozen=True)
class Report:
    """What a sweep has run."""

    calls: tuple[str, ...]
    """The store calls of the undisturbed run, in order."""
    cases: int
    """How many disturbed runs were checked; never 0."""
    seconds: float

    def __str__(self) -> str:
        return f"{len(self.calls)} store calls, {self.cases} cases, {self.seconds:.1f} s"


async def sweep(
    scenario: Scenario,
    app: Callable[[], App],
    *,
    only: str | None = None,
    url: str | None = None,
    settings: Settings | None = None,
    case_timeout: Duration = "20s",
) -> Report:
    """Check that a scenario keeps the guarantees G1 to G8 wherever its worker is stopped.

    Runs it once undisturbed, then once more for each store call of that run, with the worker
    killed or frozen past its lease before the call, after it, or as it repeats the call because
    the reply was lost. Each run has a fresh store and a fresh app; a successor finishes the work.

    `scenario` is given a `User` and should do the same each time. `app` makes the app: its models
    should answer from the request alone, as `ScriptedModel.by` does, since a successor asks
    again. `only` runs a single case, as a failure names it. Without `url` the store is in this
    process (extra `testing`); with it, on a server, under a prefix that is deleted again. No run
    may take longer than `case_timeout`.

    Raises `AssertionError` with one line for the first case that breaks a promise, and what the
    scenario raises.
    """
    began = time.monotonic()
    bounds = duration(case_timeout, field="case_timeout").total_seconds()
    runs = _Runs(scenario, app, settings or read_settings(), url, bounds)
    calls = await runs.undisturbed()
    cases = chosen(calls, only)
    for case in cases:
        await runs.disturbed(case)
    if not cases:
        raise AssertionError("sweep: the scenario's worker made no store call; submit something")
    return Report(calls, len(cases), time.monotonic() - began)


class Broken(Exception):
    """Promises that a run has broken."""

    def __init__(self, found: list[str]) -> None:
        """`found` has a line for each."""
        super().__init__("; ".join(found))


class _Runs:
    """Runs of one scenario, each in a world of its own."""

    def __init__(
        self,
        scenario: Scenario,
        app: Callable[[], App],
        settings: Settings,
        url: str | None,
        timeout_s: float,
    ) -> None:
        self._scenario = scenario
        self._app = app
        self._settings = settings
        self._url = url
        self._timeout_s = timeout_s

    async def undisturbed(self) -> tuple[str, ...]:
        """The names of the calls."""
        return tuple((await self._run(None)).calls)

    async def disturbed(self, case: Case) -> None:
        """Run one case; again if its call does not come, since timing may merge two into one."""
        for _ in range(ATTEMPTS):
            tap = await self._run(case)
            if tap.reached:
                return
        raise AssertionError(
            f"sweep: {case}: the call did not come in {ATTEMPTS} runs; the scenario goes another "
            f"way each time; this time its calls were {', '.join(tap.calls)}"
        )

    async def _run(self, case: Case | None) -> Tap:
        name = str(case) if case else "undisturbed"
        async with fresh_world(self._settings, self._url) as world:
            run = _Run(world, self._scenario, self._app(), case)
            try:
                async with asyncio.timeout(self._timeout_s):
                    await run.to_its_end()
            except Broken as broken:
                failed: Exception = broken
                said = str(broken)
            except TimeoutError as late:
                failed = late
                said = f"it did not come to an end within {self._timeout_s:g} s"
            except AssertionError as failure:
                failed = failure
                said = f"the scenario fails: {' '.join(str(failure).split()) or 'an assertion'}"
            except Exception as error:
                error.add_note(f"sweep: {name}")
                raise
            else:
                return run.first.tap
        replay = f'; replay with sweep(..., only="{case}")' if case else ""
        raise AssertionError(f"sweep: {name}: {said}{replay}") from failed


class _Run:
    """One run: the scenario, the first worker, and the successor if it is disturbed."""

    def __init__(self, world: World, scenario: Scenario, app: App, case: Case | None) -> None:
        self._world = world
        self._scenario = scenario
        self._watch = Watch(world)
        self._app = watched(app, self._watch)
        if not app.agents:
            raise Invalid(field="app", reason="it has no agents", unchanged="no case was run")
        self._case = case
        self.first = Worker(world, self._app, "first", case)
        self._at_work = self.first

    async def to_its_end(self) -> None:
        """Run, and check. Raises `Broken`."""
        async with self._played() as scenario:
            serving = asyncio.create_task(self.first.serve())
            struck = asyncio.create_task(self.first.tap.struck.wait())
            try:
                await _first_of(scenario, serving, struck)
                if self._case is not None and struck.done():
                    await self._succeed(self._case, serving)
                else:
                    await self._relieve()
            finally:
                for task in (serving, struck):
                    task.cancel()
                await asyncio.gather(serving, struck, return_exceptions=True)
            await scenario
        found = await broken(self._world, self._watch)
        if self._case is not None:
            found += answered_alike(self._case, self.first.tap.answers)
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
        agent = next(iter(self._app.agents))
        try:
            await self._scenario(User(self._world, agent, lambda: self._at_work))
        finally:
            self._world.end_of_scenario()

    async def _relieve(self) -> None:
        """Have other workers finish what the first one has left: one, unless it is drained."""
        while True:
            worker = self._at_work = Worker(self._world, self._app, "next")
            await worker.serve()
            if not worker.leaving:
                return

    async def _succeed(self, case: Case, serving: asyncio.Task[None]) -> None:
        """End or freeze the first worker, and have another one finish. Raises `Broken`."""
        if case.how is How.KILL:
            serving.cancel()
            await asyncio.wait({serving})
            await self._world.lease_store.evict(self.first.incarnation)
        else:
            await self._world.expire(self.first.incarnation)
        if (case.script, case.where) == ("claim", Where.LOST):
            # Its nonce was granted once: a copy must find nothing even while the session is ready.
            await self._world.place_overdue()
            await self._deliver_late()
        self._world.on_grant = self._deliver_late
        await self._relieve()
        await self._deliver_late()
        if case.how is How.FREEZE:
            await self._thaw(serving)

    async def _deliver_late(self) -> None:
        """Deliver what the first worker had in flight: it must change nothing any more."""
        late, self.first.tap.late = self.first.tap.late, None
        if late is not None:
            async with self._unchanged("the first worker's late call"):
                await late()

    async def _thaw(self, serving: asyncio.Task[None]) -> None:
        """Let the first worker go on after its successor has finished: it must change nothing."""
        async with self._unchanged("the thawed worker"):
            self.first.leaving = True
            self.first.tap.thaw()
            await asyncio.wait({serving}, timeout=ZOMBIE_S)
            self.first.renew()
            await asyncio.wait({serving})
        if error := serving.exception():
            raise Broken([f"the thawed worker crashed: {error!r}"])

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

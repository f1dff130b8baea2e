"""`sweep`: a scenario, disturbed at every store call that its worker makes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from changeover_shared._settings import Settings, read_settings
from changeover_shared._units import Duration, duration
from changeover_worker._app import App
from changeover_worker.testing._cases import THEN, Case, chosen, pairs_of, unknown
from changeover_worker.testing._run import Broken, Run, Scenario
from changeover_worker.testing._world import fresh_world

ATTEMPTS: Final = 3
"""How often a case is tried whose call does not come."""


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
    twice: bool = False,
    url: str | None = None,
    settings: Settings | None = None,
    case_timeout: Duration = "20s",
) -> Report:
    """Check that a scenario keeps the guarantees G1 to G8 wherever its worker is stopped.

    Runs it once undisturbed, then once more for each store call of that run, with the worker
    killed or frozen past its lease before the call, after it, or as it repeats the call because
    the reply was lost. Each run has a fresh store and a fresh app; a successor finishes the work.
    With `twice` that one is stopped as well, at each of its calls, and a third one finishes; then
    both go through `after kill`, or both through `lost freeze`.

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
    for case in chosen(calls, only, twice=twice):
        if twice or (only is not None and THEN in only):
            await runs.disturbed_twice(case, only)
        else:
            await runs.disturbed(case)
    if not runs.cases:
        raise AssertionError("sweep: the scenario's worker made no store call; submit something")
    return Report(calls, runs.cases, time.monotonic() - began)


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
        self.cases = 0
        """How many disturbed runs were checked."""

    async def undisturbed(self) -> tuple[str, ...]:
        """The names of the calls."""
        return (await self._run()).calls(0)

    async def disturbed_twice(self, case: Case, only: str | None) -> None:
        """Run a case once for each call that its successor makes, with that one stopped there."""
        successor = (await self._run(case)).calls(1)
        pairs = pairs_of(case, successor)
        if only is not None:
            pairs = tuple(pair for pair in pairs if THEN.join(map(str, pair)) == only)
            if not pairs:
                raise unknown(only, successor)
            await self.disturbed(*pairs[0])
            return
        for pair in pairs:
            # How a successor's text is merged into appends depends on time: one may not come.
            self.cases += (await self._run(*pair)).reached

    async def disturbed(self, *cases: Case) -> Run:
        """Run cases; again if a call does not come, since timing may merge two into one."""
        for _ in range(ATTEMPTS):
            run = await self._run(*cases)
            if run.reached:
                self.cases += 1
                return run
        calls = ", ".join(call for place in range(len(cases)) for call in run.calls(place))
        raise AssertionError(
            f"sweep: {THEN.join(map(str, cases))}: the call did not come in {ATTEMPTS} runs; the "
            f"scenario goes another way each time; this time its calls were {calls}"
        )

    async def _run(self, *cases: Case) -> Run:
        name = THEN.join(map(str, cases)) or "undisturbed"
        async with fresh_world(self._settings, self._url) as world:
            run = Run(world, self._scenario, self._app(), cases)
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
                return run
        replay = f'; replay with sweep(..., only="{name}")' if cases else ""
        raise AssertionError(f"sweep: {name}: {said}{replay}") from failed

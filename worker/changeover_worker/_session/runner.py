"""One held session from its grant to the moment when it is not held any more.

    load -> recover -> [ take an input -> ask -> run tools -> ask ... -> end ] -> release

What happens next is read off the checkpoint of the last commit, so a takeover, a store that lost
its last writes and an ordinary next step are one loop. Each arrow is one fenced commit. What it
holds is decided in `_turn`, which is pure; the modules here carry it out: `run` chooses the move,
`agent_turn` and `handler_turn` make it, `commits` writes it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from structlog.typing import FilteringBoundLogger

from changeover_shared._errors import LeaseError, PayloadError
from changeover_shared._events import Warned
from changeover_shared._identifiers import worker_of
from changeover_shared._settings import Settings
from changeover_shared._store.lease_store import LeaseStore
from changeover_shared._store.records import Grant
from changeover_shared._words import GiveUp
from changeover_worker._agent import Agent
from changeover_worker._app import App
from changeover_worker._session.commits import Commits
from changeover_worker._session.held import Held
from changeover_worker._session.limiter import Limiter
from changeover_worker._session.loaded import Loaded, Unreadable
from changeover_worker._session.reader import Reader, Telling
from changeover_worker._session.recorder import Recorder
from changeover_worker._session.retention import trim_if_due
from changeover_worker._session.run import SessionRun
from changeover_worker._session.running import Running
from changeover_worker._session.watching import NOBODY, SessionWatch, Watcher
from changeover_worker._session.writer import Writer
from changeover_worker._tools.threads import Threads
from changeover_worker._turn.execution import may_have_run
from changeover_worker._turn.recovery import unknown_calls

REMEMBERED: Final = 10_000
"""Of so many sessions it is known that their followers were warned."""


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How a session stopped being held here."""

    how: Literal["released", "handed_off", "closed", "lost", "unable", "crashed"]
    """`crashed`: a mistake of this package. The lease is left to run out, so that the attempt
    counts and a session that does it again is quarantined."""
    turns: int = 0
    """How many turns have ended here."""
    failed_turns: int = 0
    error: Exception | None = None
    """With `lost`, `unable` and `crashed`: why."""


class SessionRunner:
    """Runs sessions of one app; one object for all sessions of a process."""

    def __init__(
        self,
        app: App,
        store: LeaseStore,
        settings: Settings,
        log: FilteringBoundLogger,
        *,
        resources: Any = None,
        jitter: Callable[[], float] = random.random,
        watcher: Watcher = NOBODY,
    ) -> None:
        self._app = app
        self._store = store
        self._settings = settings
        self._log = log
        self._resources = resources
        self._jitter = jitter
        self._watcher = watcher
        self._threads = Threads()
        self._limiter = Limiter(store)
        self._warned: dict[str, None] = {}

    async def run(self, grant: Grant, held: Held) -> RunEnd:
        """Run a session until it is not held any more. Raises nothing but `CancelledError`.

        A write that is in flight when it is cancelled goes on to its answer by itself.
        """
        if self._app.on_event is None:
            return await self._run(grant, held, None)
        reader = Reader(self._store.clock.now_ms, fence=grant.lease.fence, epoch=grant.head.epoch)
        telling = Telling(self._app.on_event, reader, held, self._log)
        urgent = True
        try:
            end = await self._run(grant, held, reader)
            urgent = end.how in ("lost", "crashed")
            return end
        finally:
            await telling.end(urgent=urgent)

    async def _run(self, grant: Grant, held: Held, reader: Reader | None) -> RunEnd:
        lease = grant.lease
        watch = self._watcher.session(lease.session_id, grant.head.agent, lease.fence)
        how = "stopped"
        try:
            end = await self._run_watched(grant, held, reader, watch)
            how = end.how
            return end
        finally:
            watch.end(how)

    async def _run_watched(
        self, grant: Grant, held: Held, reader: Reader | None, watch: SessionWatch
    ) -> RunEnd:
        loaded = Loaded(self._store, grant.lease.session_id)
        recorder = Recorder(Writer(self._store, held, reader))
        run: SessionRun | None = None
        try:
            if grant.unreadable is not None:
                raise grant.unreadable
            agent = self._app.agents.get(grant.head.agent)
            if agent is None:
                await self._warn_once(recorder, grant)
                raise Unreadable(f"this app has no agent {grant.head.agent!r}")
            await loaded.take_over(grant)
            self._log_taken(grant, loaded, agent)
            await trim_if_due(self._store, self._settings, loaded.session_id, grant.head)
            run = SessionRun(self._running(agent, held, loaded, recorder, watch))
            how = await run.to_its_end()
            return RunEnd(how, run.turns, run.failed_turns)
        except LeaseError as why:
            return _ended("lost", run, why)
        except (Unreadable, PayloadError) as why:
            return await self._unable(recorder, run, why)
        except Exception as why:
            self._log.exception("warning", code="session_crashed", session=loaded.session_id)
            return _ended("crashed", run, why)

    def _running(
        self, agent: Agent, held: Held, loaded: Loaded, recorder: Recorder, watch: SessionWatch
    ) -> Running:
        commits = Commits(
            self._store,
            self._settings,
            self._log,
            recorder=recorder,
            held=held,
            loaded=loaded,
            agent=agent,
            watch=watch,
        )
        return Running(
            app=self._app,
            agent=agent,
            store=self._store,
            settings=self._settings,
            log=self._log,
            resources=self._resources,
            threads=self._threads,
            held=held,
            loaded=loaded,
            recorder=recorder,
            commits=commits,
            limiter=self._limiter,
            jitter=self._jitter,
            watcher=self._watcher,
        )

    async def _warn_once(self, recorder: Recorder, grant: Grant) -> None:
        """Tell those who follow why nothing happens: once a session, however often it comes.

        Raises `LeaseError`.
        """
        session_id = grant.lease.session_id
        if session_id in self._warned:
            return
        agent, worker = grant.head.agent, worker_of(grant.lease.incarnation)
        text = f"the app of {worker} has no agent {agent!r}; the session waits for one that has it"
        await recorder.record(Warned(code="no_agent", text=text))
        self._warned[session_id] = None
        if len(self._warned) > REMEMBERED:
            del self._warned[next(iter(self._warned))]

    def _log_taken(self, grant: Grant, loaded: Loaded, agent: Agent) -> None:
        if not grant.lapsed:
            return
        execution = loaded.checkpoint.execution
        step = execution.step if execution is not None else None
        lost = len(unknown_calls(execution, agent.on_takeover))
        if execution is not None:
            lost += len(may_have_run(execution))
        self._log.info(
            "session_taken",
            session=loaded.session_id,
            fence=grant.lease.fence,
            **{"from": worker_of(grant.lapsed.split("|")[1])},
            reason=grant.head.raw.get("lapsed_why", ""),
            turn=grant.head.turn,
            step=None if step is None else step.index,
            unknown_tools=lost,
        )

    async def _unable(self, recorder: Recorder, run: SessionRun | None, why: Exception) -> RunEnd:
        session_id = recorder.session_id
        self._log.warning("warning", code="session_unable", session=session_id, text=str(why))
        try:
            await recorder.give_up(GiveUp.UNABLE)
        except LeaseError as lost:
            return _ended("lost", run, lost)
        return _ended("unable", run, why)


def _ended(
    how: Literal["lost", "unable", "crashed"], run: SessionRun | None, why: Exception
) -> RunEnd:
    turns, failed = (run.turns, run.failed_turns) if run else (0, 0)
    return RunEnd(how, turns, failed, why)

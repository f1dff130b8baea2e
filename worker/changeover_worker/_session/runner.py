"""One held session from its grant to the moment when it is not held any more.

    load -> recover -> [ take an input -> ask -> run tools -> ask ... -> end ] -> release

What happens next is read off the checkpoint of the last commit, so a takeover, a store that lost
its last writes and an ordinary next step are one loop. Each arrow is one fenced commit; the
decisions are pure (`start`, `turn`, `ending`, `recovery`), `run` only carries them out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from structlog.typing import FilteringBoundLogger

from changeover_shared._errors import LeaseError
from changeover_shared._settings import Settings
from changeover_shared._store.lease_store import LeaseStore
from changeover_shared._store.records import Grant
from changeover_shared._words import GiveUp
from changeover_worker._app import App
from changeover_worker._session.held import Held
from changeover_worker._session.loaded import Loaded, Unreadable
from changeover_worker._session.run import SessionRun
from changeover_worker._session.writer import Writer


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
    ) -> None:
        self._app = app
        self._store = store
        self._settings = settings
        self._log = log
        self._resources = resources

    async def run(self, grant: Grant, held: Held) -> RunEnd:
        """Run a session until it is not held any more. Raises nothing but `CancelledError`.

        A write that is in flight when it is cancelled goes on to its answer by itself.
        """
        loaded = Loaded(self._store, grant.lease.session_id)
        writer = Writer(self._store, held)
        run: SessionRun | None = None
        try:
            agent = self._app.agents.get(grant.head.agent)
            if agent is None:
                raise Unreadable(f"this app has no agent {grant.head.agent!r}")
            await loaded.take_over(grant)
            run = SessionRun(
                self._app,
                self._store,
                self._settings,
                self._log,
                agent=agent,
                resources=self._resources,
                held=held,
                loaded=loaded,
                writer=writer,
            )
            how = await run.to_its_end()
            return RunEnd(how, run.turns, run.failed_turns)
        except LeaseError as why:
            return _ended("lost", run, why)
        except Unreadable as why:
            return await self._unable(writer, run, why)
        except Exception as why:
            self._log.exception("warning", code="session_crashed", session=loaded.session_id)
            return _ended("crashed", run, why)

    async def _unable(self, writer: Writer, run: SessionRun | None, why: Unreadable) -> RunEnd:
        self._log.warning("warning", code="session_unable", text=str(why))
        try:
            await writer.give_up(GiveUp.UNABLE)
        except LeaseError as lost:
            return _ended("lost", run, lost)
        return _ended("unable", run, why)


def _ended(
    how: Literal["lost", "unable", "crashed"], run: SessionRun | None, why: Exception
) -> RunEnd:
    turns, failed = (run.turns, run.failed_turns) if run else (0, 0)
    return RunEnd(how, turns, failed, why)

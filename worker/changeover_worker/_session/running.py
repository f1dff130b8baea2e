"""A held session with all that it takes to run it; what drives a turn is given this."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from structlog.typing import FilteringBoundLogger

from changeover_shared._budget import NO_BUDGET
from changeover_shared._settings import Settings
from changeover_shared._store.lease_store import LeaseStore
from changeover_shared._words import GiveUp
from changeover_worker._agent import Agent
from changeover_worker._app import App
from changeover_worker._session.commits import Commits
from changeover_worker._session.held import Held
from changeover_worker._session.limiter import Limiter
from changeover_worker._session.loaded import Loaded
from changeover_worker._session.recorder import Recorder
from changeover_worker._session.signals import Moment, reached
from changeover_worker._session.watching import Watcher
from changeover_worker._tools.threads import Threads
from changeover_worker._turn.budget import Limits
from changeover_worker._turn.draft import NO_TAIL, Draft, Onward, Tail, new_step_id
from changeover_worker._turn.quarantine import quarantined

How = Literal["released", "handed_off", "closed"]


@dataclass(slots=True, eq=False)
class Running:
    """One session under one grant. One task uses it."""

    app: App
    agent: Agent
    store: LeaseStore
    settings: Settings
    log: FilteringBoundLogger
    resources: Any
    threads: Threads
    held: Held
    loaded: Loaded
    recorder: Recorder
    commits: Commits
    limiter: Limiter
    jitter: Callable[[], float]
    """Numbers from 0 to 1 that keep sessions from asking again all at once."""
    watcher: Watcher
    given_up: How | None = None
    answering: str = ""
    """The turn that was begun here and has said nothing yet."""

    async def write(self, draft: Draft, tail: Tail = NO_TAIL) -> None:
        """Commit a draft, or what has to be committed instead. Raises `Stale`, `LeaseError`."""
        await self.commits.write(draft, tail)

    async def abort(self, tail: Tail = NO_TAIL) -> None:
        """End the turn because it was interrupted."""
        await self.write(await self.commits.aborted(tail))

    async def give_up(self, reason: GiveUp, how: How) -> None:
        """Let the session go outside a commit."""
        await self.recorder.give_up(reason)
        self.given_up = how
        if reason is GiveUp.HAND_OFF:
            await reached(Moment.HANDED_OFF, self.loaded.session_id)

    async def hand_off(self) -> None:
        """Give the session up, for another worker to go on at once."""
        await self.give_up(GiveUp.HAND_OFF, "handed_off")

    async def quarantine(self, error: str) -> None:
        """Stop the session until an operator acts: its open turn cannot go on anywhere."""
        head = await self.store.read_head(self.loaded.session_id)
        attempts = head.attempts if head is not None else 0
        await self.write(quarantined(self.loaded.checkpoint, error, attempts))
        self.log.error(
            "session_quarantined",
            session=self.loaded.session_id,
            attempts=attempts,
            cause="worker",
            error=error,
        )

    def onward(self, turn_id: str, index: int) -> Onward:
        """How the turn goes on once nothing is pending: with step `index`, or elsewhere."""
        return Onward(
            step_id=None if self.held.leaving else new_step_id(turn_id, index),
            model=str(self.loaded.checkpoint.model),
            limits=self.limits,
        )

    @property
    def limits(self) -> Limits:
        """What a turn may use here."""
        return Limits(
            self.settings.max_steps,
            self.agent.budget or NO_BUDGET,
            self.app.price(str(self.loaded.checkpoint.model)),
        )

    def stop_if_lost(self) -> None:
        """Raise the `LeaseError` with which the session was lost, if it was."""
        if self.held.lost is not None:
            raise self.held.lost

    @property
    def now_ms(self) -> int:
        """Redis's time."""
        return self.store.clock.now_ms()

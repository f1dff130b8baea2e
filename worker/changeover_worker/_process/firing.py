"""Schedules whose time has come: what the leader of the sweep submits, and moves on.

The id of what is submitted is made of the schedule and its time, so whoever does it, and however
often, the session has one message; and a schedule is moved on only as it was read. So a crash
between the two, or a leader that does not know yet that it leads no more, changes nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from structlog.typing import FilteringBoundLogger

from changeover_shared._errors import Busy, ChangeoverError, RequestError
from changeover_shared._schedules import decide, submission_of
from changeover_shared._store.lease_store import LeaseStore
from changeover_shared._store.records import Submitted
from changeover_shared._store.schedules import DUE_AT_ONCE, LONGEST_PAUSE_MS, Stored

ANSWER_S: Final = 2.0
"""How long one schedule may keep the leader: the others do not wait for it."""
BUSY_S: Final = 1.0
"""After how long the leader looks after sessions again, however much is due."""
SOONEST_MS: Final = 1_000
PATIENCE: Final = 4
"""What fails is tried again after a quarter of the time for which it has failed."""


class Firing:
    """Serves the schedules of a fleet while this worker leads the sweep."""

    def __init__(self, store: LeaseStore, log: FilteringBoundLogger) -> None:
        self._store = store
        self._schedules = store.producer.schedules
        self._log = log
        self._told: dict[str, int] = {}
        """Schedule -> the time that could not be served and of which somebody was told."""
        self._blind = False

    def forget(self) -> None:
        """Somebody else leads from now on."""
        self._told.clear()
        self._blind = False

    async def look(self, now_ms: int) -> None:
        """Serve what is due at a moment of Redis's clock; what fails is logged and tried again."""
        began = time.monotonic()
        while time.monotonic() - began < BUSY_S:
            due = await self._due(now_ms)
            await asyncio.gather(*(self._serve(one, now_ms) for one in due))
            if len(due) < DUE_AT_ONCE:
                return

    async def _due(self, now_ms: int) -> list[Stored]:
        try:
            async with asyncio.timeout(ANSWER_S):
                due = await self._schedules.due(now_ms)
        except (ChangeoverError, TimeoutError) as error:
            if not self._blind:
                self._blind = True
                text = str(error) or "no answer in time"
                self._log.warning("warning", code="schedules_unread", text=text)
            return []
        self._blind = False
        return due

    async def _serve(self, one: Stored, now_ms: int) -> None:
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._serve_in_time(one, now_ms)
        except (ChangeoverError, TimeoutError) as error:
            self._failed(one, error)
            await self._try_later(one, now_ms, error)
        else:
            self._told.pop(one.name, None)

    async def _serve_in_time(self, one: Stored, now_ms: int) -> None:
        if one.due_ms > now_ms:
            # An index entry is never a right: it was looked at too early.
            await self._schedules.move(one, one.due_ms)
            return
        plan = one.plan()
        fires, next_ms = decide(plan, one.due_ms, now_ms)
        if fires:
            submit = plan.message.submit(one.session_id, submission_of(one.name, one.due_ms))
            try:
                found = await self._store.producer.submit(submit, timeout_s=ANSWER_S)
            except Busy:
                raise
            except RequestError as refused:
                # It will be refused whenever it is tried: the next time is another submission.
                self._failed(one, refused)
            else:
                if isinstance(found, Submitted) and found.word == "ACCEPTED":
                    self._fired(one, submit.submission_id, now_ms)
        else:
            self._log.warning("schedule_skipped", **_whose(one), late_ms=now_ms - one.due_ms)
        await self._schedules.move(one, next_ms)

    def _fired(self, one: Stored, submission: str, now_ms: int) -> None:
        late_ms = now_ms - one.due_ms
        self._log.info("schedule_fired", **_whose(one), submission=submission, late_ms=late_ms)

    def _failed(self, one: Stored, error: Exception) -> None:
        """Say once for each time of a schedule that it could not be served."""
        if self._told.get(one.name) != one.due_ms:
            self._told[one.name] = one.due_ms
            code = error.code if isinstance(error, ChangeoverError) else "no_answer"
            text = str(error) or "no answer in time"
            self._log.warning(
                "schedule_failed", **_whose(one), due=one.due_ms, code=code, text=text
            )

    async def _try_later(self, one: Stored, now_ms: int, error: Exception) -> None:
        """Look at others first. What cannot even be put off is looked at again at once."""
        asked = error.retry_after if isinstance(error, Busy) else timedelta(0)
        soonest_ms = max(SOONEST_MS, round(asked / timedelta(milliseconds=1)))
        pause_ms = min(LONGEST_PAUSE_MS, max(soonest_ms, (now_ms - one.due_ms) // PATIENCE))
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._schedules.move(one, one.due_ms, look_ms=now_ms + pause_ms)
        except (ChangeoverError, TimeoutError):
            return


def _whose(one: Stored) -> Mapping[str, str]:
    return {"schedule": one.name, "session": one.session_id}

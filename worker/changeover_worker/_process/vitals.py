"""Signs of life of the main loop and of the claim loop, judged from the keeper's thread.

Silence is counted in the judge's own rounds, each worth two of its pauses at most: a process that
was frozen as a whole has not been silent for as long as it slept.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import ClassVar, Final

from structlog.typing import FilteringBoundLogger

from changeover_shared._errors import SetupError, StoreUnavailable
from changeover_worker._process.liveness import CLAIMS_LIMIT_S, LIVE, Facts, Verdict, judge

LATELY_S: Final = 15.0
"""How far back the lag of the loop is remembered: as often as it is usually asked for."""

Ping = Callable[[], Awaitable[object]]
"""Asks Redis for any answer, on the judge's connection; where it is several servers, all of them:
a claim loop that waits for one that is away waits for Redis."""


class Unchanged:
    """For how long a sign has stayed the same."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._sign = 0

    def see(self, sign: int, passed_s: float) -> None:
        """Look at the sign once more, so many seconds after the last look."""
        self.seconds = 0.0 if sign != self._sign else self.seconds + passed_s
        self._sign = sign


class Rounds:
    """The claim loop's signs."""

    def __init__(self) -> None:
        self.finished = 0
        """How many rounds were answered to their end."""
        self.resting = True
        """Nothing may be claimed: no slot is free, or the worker drains."""

    def finish(self) -> None:
        """One more."""
        self.finished += 1


class Vitals:
    """What a process knows of its own health. The main loop and the claim loop leave signs; the
    judge, in another thread, reads them."""

    CLAIMS_LIMIT_S: ClassVar = CLAIMS_LIMIT_S
    PING_EVERY_S: ClassVar = 5.0
    PING_TIMEOUT_S: ClassVar = 5.0

    def __init__(self, *, lag_limit_s: float, log: FilteringBoundLogger) -> None:
        self.rounds = Rounds()
        self.verdict = LIVE
        """The newest verdict; may be read from any thread."""
        self.loop_blocked = False
        """Whether the main loop is blocked for longer than it may be."""
        self._lag_limit_s = lag_limit_s
        self._log = log
        self._pause_s = min(1.0, lag_limit_s / 4)
        self._beats = 0
        self._beat_s = self._pause_s / 2
        self._beat_due = 0.0
        self._lags: deque[float] = deque(maxlen=max(1, round(LATELY_S / self._beat_s)))
        self._main = threading.get_ident()
        self._answers_since: float | None = None
        self._not_live_since = 0.0

    def lag_s(self) -> float:
        """By how much the loop that beats was late, at most, in the last 15 s: in seconds. From any
        thread."""
        now_s = time.monotonic() - self._beat_due if self._beat_due else 0.0
        return max(0.0, now_s, *self._lags.copy())

    @asynccontextmanager
    async def beating(self) -> AsyncIterator[None]:
        """Leave the loop's own sign for as long as the block lasts, on the loop that is judged."""
        self._main = threading.get_ident()
        beat = asyncio.create_task(self._beat(), name="beat")
        try:
            yield
        finally:
            beat.cancel()
            with suppress(asyncio.CancelledError):
                await beat
            self._beat_due = 0.0

    async def watch(self, ping: Ping) -> None:
        """Judge once a second and log each change of the verdict; never returns."""
        pinging = asyncio.create_task(self._keep_pinging(ping))
        try:
            await self._keep_judging()
        finally:
            pinging.cancel()
            await asyncio.gather(pinging, return_exceptions=True)

    async def _beat(self) -> None:
        while True:
            self._beats += 1
            self._beat_due = time.monotonic() + self._beat_s
            await asyncio.sleep(self._beat_s)
            self._lags.append(time.monotonic() - self._beat_due)

    async def _keep_judging(self) -> None:
        loop, claims = Unchanged(), Unchanged()
        before = time.monotonic()
        while True:
            await asyncio.sleep(self._pause_s)
            now = time.monotonic()
            passed_s, before = min(now - before, 2 * self._pause_s), now
            loop.see(self._beats, passed_s)
            claims.see(self.rounds.finished, passed_s)
            if self.rounds.resting:
                claims.seconds = 0.0
            since = self._answers_since
            facts = Facts(
                loop_silent_s=loop.seconds,
                claims_silent_s=claims.seconds,
                redis_answers_s=None if since is None else now - since,
            )
            self.loop_blocked = facts.loop_silent_s > self._lag_limit_s
            limits = {"lag_limit_s": self._lag_limit_s, "claims_limit_s": self.CLAIMS_LIMIT_S}
            self._say(judge(facts, **limits), facts)

    async def _keep_pinging(self, ping: Ping) -> None:
        while True:
            asked_at = time.monotonic()
            if await self._answers(ping):
                if self._answers_since is None:
                    self._answers_since = asked_at
                await asyncio.sleep(self.PING_EVERY_S)
            else:
                self._answers_since = None
                await asyncio.sleep(self._pause_s)

    async def _answers(self, ping: Ping) -> bool:
        try:
            async with asyncio.timeout(self.PING_TIMEOUT_S):
                await ping()
        except (StoreUnavailable, SetupError, TimeoutError):
            return False
        return True

    def _say(self, verdict: Verdict, facts: Facts) -> None:
        was_live, self.verdict = self.verdict.live, verdict
        if was_live and not verdict.live:
            self._not_live_since = time.monotonic()
            if facts.loop_silent_s > self._lag_limit_s:
                self._log.error(
                    "loop_blocked", ms=round(facts.loop_silent_s * 1000), stack=self._stack()
                )
            self._log.error("not_live", reason=verdict.reason)
        elif verdict.live and not was_live:
            self._log.info("live_again", s=round(time.monotonic() - self._not_live_since, 1))

    def _stack(self) -> str:
        """Where the main loop's thread is just now."""
        frame = sys._current_frames().get(self._main)
        return "".join(traceback.format_stack(frame)) if frame else ""

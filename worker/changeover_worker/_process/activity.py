"""What a worker does for each queue: what it holds, and counts that only rise.

Counted on the loop that runs the sessions, read from the keeper's thread: every entry is replaced
as a whole.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from changeover_shared._results import QueueActivity

WINDOW_S: Final = 60.0
"""How far back `recent` reaches, once the worker is that old; up to one registration further."""
STEP_S: Final = 5.0
"""How close to each other the moments are that are remembered."""


class Counts(NamedTuple):
    """One queue's."""

    sessions: int = 0
    claims: int = 0
    takeovers: int = 0
    turns: int = 0


class Activity:
    """Counts, and what they were about a minute ago."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts: dict[str, Counts] = {}
        self._before: deque[tuple[float, Mapping[str, Counts]]] = deque([(clock(), {})])

    def claimed(self, queue: str, *, takeover: bool) -> None:
        """A session was granted; a takeover if its holder before had not released it."""
        now = self._of(queue)
        self._counts[queue] = now._replace(
            sessions=now.sessions + 1, claims=now.claims + 1, takeovers=now.takeovers + takeover
        )

    def released(self, queue: str) -> None:
        """A session is held no more."""
        now = self._of(queue)
        self._counts[queue] = now._replace(sessions=now.sessions - 1)

    def turn_ended(self, queue: str) -> None:
        """A turn has ended, however it did."""
        now = self._of(queue)
        self._counts[queue] = now._replace(turns=now.turns + 1)

    def told(self) -> tuple[dict[str, QueueActivity], int]:
        """What the registry is told, by queue, and how many ms `recent` reaches back."""
        at, counts = self._clock(), dict(self._counts)
        if at - self._before[-1][0] >= STEP_S:
            self._before.append((at, counts))
        while len(self._before) > 1 and at - self._before[1][0] >= WINDOW_S:
            self._before.popleft()
        since, before = self._before[0]
        told = {name: _activity(now, before.get(name, Counts())) for name, now in counts.items()}
        return told, round(1000 * (at - since))

    def _of(self, queue: str) -> Counts:
        return self._counts.get(queue, Counts())


def _activity(now: Counts, before: Counts) -> QueueActivity:
    return QueueActivity(
        sessions=now.sessions,
        claims=now.claims,
        takeovers=now.takeovers,
        turns=now.turns,
        recent_claims=now.claims - before.claims,
        recent_takeovers=now.takeovers - before.takeovers,
        recent_turns=now.turns - before.turns,
    )

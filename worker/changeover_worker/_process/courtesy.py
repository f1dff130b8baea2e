"""Room for suspects: when a busy process lets its slots run empty for one.

A suspect runs only in a process that holds nothing else. In a fleet that is never idle there is
none, so the leader of the sweep, which sees every suspect that waits, makes itself one: after a
suspect has waited for `patience` it claims nothing for up to `room`, again and again, until it has
taken the suspect or nobody waits any more.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class Courtesy:
    """Notes where suspects wait. No I/O."""

    def __init__(
        self, *, patience_s: float, room_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._patience_s = patience_s
        self._room_s = room_s
        self._clock = clock
        self._since: dict[int, float] = {}

    def saw(self, partition: int, *, waiting: bool) -> None:
        """Say whether a suspect waits in a partition that was looked at."""
        if waiting:
            self._since.setdefault(partition, self._clock())
        else:
            self._since.pop(partition, None)

    def forget(self) -> None:
        """Somebody else looks now."""
        self._since.clear()

    @property
    def due(self) -> bool:
        """Whether nothing but a suspect should be claimed now."""
        if not self._since:
            return False
        waited = self._clock() - min(self._since.values())
        return waited % (self._patience_s + self._room_s) >= self._patience_s

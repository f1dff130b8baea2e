"""How long one of the hints, the bell or the sweep's gate, has not answered."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ClassVar


class Silence:
    """Notes whether something answers; short gaps do not count."""

    LIMIT_S: ClassVar = 3.0
    """A silence that lasts so long counts."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: float | None = None

    def note(self, *, answered: bool) -> None:
        """Say whether the last attempt was answered."""
        if answered:
            self._since = None
        elif self._since is None:
            self._since = self._clock()

    @property
    def lasts(self) -> bool:
        """Whether nothing has been answered for longer than the limit."""
        return self._since is not None and self._clock() - self._since >= self.LIMIT_S

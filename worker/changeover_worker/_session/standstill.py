"""For how long a grant has made no progress. The store extends no lease past the limit of it."""

from __future__ import annotations

import time
from datetime import timedelta


class Standstill:
    """Counts from the grant, or from the last commit that was progress, as the store does."""

    def __init__(self, limit: timedelta | None, since: float) -> None:
        self._limit_s = None if limit is None else limit.total_seconds()
        self._since = since

    def end(self) -> None:
        """There was progress."""
        self._since = time.monotonic()

    def leaves_time_for(self, span_ms: int, *, behind_ms: int) -> bool:
        """Whether something that may take `span_ms`, begun so long from now, ends in time. What may
        take longer than the limit is given its own time, whenever it begins."""
        if self._limit_s is None or span_ms / 1000 > self._limit_s:
            return True
        left_s = self._since + self._limit_s - time.monotonic()
        return (behind_ms + span_ms) / 1000 <= left_s

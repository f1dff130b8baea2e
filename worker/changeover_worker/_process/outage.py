"""When Redis went away and when it came back, said once each."""

from __future__ import annotations

import threading
import time

from structlog.typing import FilteringBoundLogger


class Outage:
    """Hears of Redis from the claim loop, the stores and the keeper, from any thread."""

    def __init__(self, log: FilteringBoundLogger) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._since: float | None = None

    def seconds(self) -> float | None:
        """For how long Redis has been away; None while it answers."""
        since = self._since
        return None if since is None else time.monotonic() - since

    def noticed(self, kind: str) -> None:
        """Redis did not answer somebody."""
        with self._lock:
            if self._since is None:
                self._since = time.monotonic()
                self._log.warning("redis_lost", kind=kind)

    def over(self, another: bool = False) -> None:
        """Redis answered somebody: whether it is another server, or was restarted."""
        with self._lock:
            if self._since is not None:
                self._log.info(
                    "redis_back",
                    s=round(time.monotonic() - self._since, 1),
                    replid_changed=another,
                )
                self._since = None

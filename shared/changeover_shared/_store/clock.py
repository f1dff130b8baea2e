"""Redis's time as this process knows it: the last reply's time plus what has passed since."""

from __future__ import annotations

import time
from collections.abc import Sequence


def time_ms(reply: Sequence[bytes]) -> int:
    """The answer of TIME in milliseconds since 1970."""
    seconds, micros = map(int, reply)
    return seconds * 1000 + micros // 1000


class ServerClock:
    """An estimate that never runs ahead of Redis by more than the two clocks drift apart.

    Used for not-after times and for stamps people read; nothing is granted or expired by it.
    """

    def __init__(self) -> None:
        self._server_ms = 0
        self._seen = 0.0

    def saw(self, server_ms: int) -> None:
        """Take note of the time that a reply carried."""
        self._server_ms = server_ms
        self._seen = time.monotonic()

    def now_ms(self) -> int:
        """Milliseconds since 1970 on Redis's clock; 0 before the first reply."""
        if not self._server_ms:
            return 0
        return self._server_ms + int((time.monotonic() - self._seen) * 1000)

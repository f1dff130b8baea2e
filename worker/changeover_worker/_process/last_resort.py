"""The end of a process that does not end by itself.

A tool that swallows its cancellation, a thread that nobody can stop, a lifespan that hangs: none
of them keeps a process that was told to stop. What it still holds is evicted or runs out.
"""

from __future__ import annotations

import os
import sys
import threading
import time

from structlog.typing import FilteringBoundLogger

DRAINED_S = 15.0
"""What a drain may take beyond its grace."""
FORCED_S = 10.0
"""What a forced hand-off may take, clean-up included."""
LEFT_S = 5.0
"""How long a process may last once its worker has ended."""
_SAID_S = 1.0


class LastResort:
    """Ends the process with `os._exit` when a time is over. Until one is set it does nothing."""

    def __init__(self, log: FilteringBoundLogger) -> None:
        self._log = log
        self._changed = threading.Condition()
        self._at: float | None = None
        self._code = 0
        threading.Thread(target=self._watch, name="last-resort", daemon=True).start()

    def end_within(self, seconds: float, code: int) -> None:
        """Exit with `code` after `seconds` at the latest; what was said before holds if it is
        sooner. Safe in a signal handler."""
        with self._changed:
            at = time.monotonic() + seconds
            self._at = at if self._at is None else min(self._at, at)
            self._code = code
            self._changed.notify()

    def _watch(self) -> None:
        with self._changed:
            while self._at is None or self._at > time.monotonic():
                self._changed.wait(None if self._at is None else self._at - time.monotonic())
        # In a thread of its own: stderr may be blocked, or its lock held by a thread that hangs.
        said = threading.Thread(target=self._say, name="last-words", daemon=True)
        said.start()
        said.join(_SAID_S)
        os._exit(self._code)

    def _say(self) -> None:
        alive = sorted(thread.name for thread in threading.enumerate() if thread.is_alive())
        self._log.warning(
            "warning", code="left_behind", exit=self._code, text=f"threads: {', '.join(alive)}"
        )
        sys.stdout.flush()
        sys.stderr.flush()

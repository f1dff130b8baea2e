"""What every command returns: one meaning a number, the same for producers and workers."""

from __future__ import annotations

from typing import Final

DONE: Final = 0
"""Done; a worker: drained."""
ENDED_BADLY: Final = 1
"""A turn was not completed, a check failed, a burst had failures."""
WRONG_USAGE: Final = 2
UNKNOWN: Final = 3
"""No such session or submission."""
REFUSED: Final = 4
"""Busy, closed, already running."""
UNANSWERED: Final = 5
"""Redis did not answer, or not confirm: asking again is safe."""
TIMED_OUT: Final = 6
"""The wait is over, the work goes on."""
BUG: Final = 70
FORCED: Final = 75
"""A worker was stopped by force."""
MISCONFIGURED: Final = 78
"""It will not start with this configuration or this server; do not restart."""
MENDABLE: Final = 79
"""From a worker to `changeover dev` alone: as 78, and an edit of the app may help."""
INTERRUPTED: Final = 130
"""Ctrl-C."""

"""A wall clock that somebody sets again and again, as this process sees it."""

from __future__ import annotations

import random
import threading
import time
from typing import Final

FAR_S: Final = 2 * 3600.0
"""How far it is off at most, in either direction."""
STEADY_S: Final = (0.5, 4.0)
"""How long it goes on as it was set."""


def let_the_clock_jump(seed: int) -> None:
    """Let `time.time` jump from now on, by a seed. What is monotonic stays so, as on any host."""
    real = time.time
    offset = [0.0]

    def jump() -> None:
        chance = random.Random(seed)
        while True:
            time.sleep(chance.uniform(*STEADY_S))
            offset[0] = chance.uniform(-FAR_S, FAR_S)

    def jumped() -> float:
        return real() + offset[0]

    time.time = jumped
    threading.Thread(target=jump, name="jumping-clock", daemon=True).start()

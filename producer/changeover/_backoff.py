"""How long to pause before Redis is asked again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import repeat


def pauses(first_s: float = 0.05, most_s: float = 2.0) -> Iterator[float]:
    """Yield seconds without end: each twice the last up to `most_s`, with jitter of a half."""
    span = first_s
    for _ in repeat(None):
        yield span * random.uniform(0.5, 1.0)
        span = min(most_s, span * 2)

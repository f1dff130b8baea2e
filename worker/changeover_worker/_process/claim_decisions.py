"""What a claim loop decides: how many, from where, whether to ring. No I/O, no clock.

The bell is a hint and one token stands for a whole partition, so whoever takes the token takes
one batch and rings again before it works. After a batch that was mostly lost to others, the next
one starts somewhere else in the window, which is what keeps a fleet apart on one hot partition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

BATCH: Final = 16
"""The most sessions that one claim takes, so that a burst spreads over the fleet."""
SPREAD: Final = 4
"""How many times its share of the free slots one partition may have at once."""
WINDOW: Final = 8
"""How many batches of ready sessions are looked at."""
LISTEN_S: Final = 5.0
SOLO: Final = "!solo"
"""What a route ends with where suspects wait."""

Uniform = Callable[[float, float], float]
"""A random number between two others, as `random.uniform` gives it."""
Below = Callable[[int], int]
"""A random whole number from 0 up to and without the given one, as `random.randrange` gives it."""


def batch_size(free: int, rung: int = 0) -> int:
    """How many sessions to claim with `free` slots while `rung` other partitions have work.

    The order is fair within a partition: a whole batch of one in which a single tenant waits would
    pass by everybody who waits in the others.
    """
    return min(BATCH, free, max(1, SPREAD * free // (rung + 1)))


def window_size(batch: int) -> int:
    """How many ready sessions to look at."""
    return WINDOW * batch


def choose(ready: Sequence[str], batch: int, *, lossy: bool, below: Below) -> tuple[str, ...]:
    """The ids to claim: from the front, after a lossy batch from a random multiple of `batch`."""
    batches = -(-len(ready) // batch) if batch else 0
    start = below(batches) * batch if lossy and batches else 0
    return tuple(ready[start : start + batch])


def was_lossy(asked: int, granted: int) -> bool:
    """Whether others took more than half of a batch."""
    return asked - granted > asked / 2


def should_ring(waiting: int, asked: int, granted: int) -> bool:
    """Whether work is left that somebody else should hear of.

    Not after a batch that got nothing: its winners ring, and if there are none the sweep does.
    """
    return granted > 0 and waiting > asked


def listen_timeout(uniform: Uniform) -> float:
    """How long to wait for a bell, in seconds: 5 +- 20 %, so that a fleet does not beat in time."""
    return uniform(LISTEN_S * 0.8, LISTEN_S * 1.2)


def audible(routes: Sequence[str], *, empty: bool, reserved: bool = False) -> tuple[str, ...]:
    """The bells to wait for: only a process that holds nothing hears those of suspects, and one
    that is reserved for them hears no others."""
    suspects = tuple(route + SOLO for route in routes) if empty else ()
    return suspects if reserved else (*routes, *suspects)


def is_solo(route: str) -> bool:
    """Whether suspects wait there."""
    return route.endswith(SOLO)


def plain(route: str) -> str:
    """The route without the mark of suspects."""
    return route.removesuffix(SOLO)

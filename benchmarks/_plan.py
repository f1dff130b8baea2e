"""What a measurement is: rows that it fills, and one run that fills them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One number of a measurement."""

    name: str
    what: str
    unit: str
    goal: str = ""
    """Printed beside the number; never a reason to fail."""


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    quick: bool

    def of(self, full: int, quick: int) -> int:
        """The one or the other size."""
        return quick if self.quick else full


Values = Mapping[str, float]
"""Row name -> number."""


@dataclass(frozen=True)
class Measurement:
    """Something that can be measured by itself."""

    name: str
    rows: tuple[Row, ...]
    run: Callable[[Scale], Awaitable[Values]]
    """One run on a fresh server."""

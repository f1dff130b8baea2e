"""What a model costs, as its operator knows it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Final

from changeover_shared._errors import Invalid
from changeover_shared._items import Usage

_PER: Final = 1_000_000


@dataclass(frozen=True)
class Price:
    """What a million tokens cost, in any one unit that all prices of an app share. Raises
    `Invalid`."""

    input: float
    output: float
    cached_input: float | None = None
    """Of the input, what the provider had cached; None: as other input."""

    def __post_init__(self) -> None:
        for name in ("input", "output", "cached_input"):
            value = getattr(self, name)
            fits = isinstance(value, int | float) and not isinstance(value, bool)
            if not (name == "cached_input" and value is None) and not (
                fits and 0 <= value <= sys.float_info.max
            ):
                reason = f"{name} is a number from 0 on, not {value!r:.80}"
                raise Invalid(field="price", reason=reason, unchanged="nothing was started")

    def of(self, usage: Usage) -> float:
        """What so many tokens cost."""
        cached = min(usage.cached_input_tokens, usage.input_tokens)
        cached_price = self.input if self.cached_input is None else self.cached_input
        fresh = usage.input_tokens - cached
        return (fresh * self.input + cached * cached_price + usage.output_tokens * self.output) / (
            _PER
        )

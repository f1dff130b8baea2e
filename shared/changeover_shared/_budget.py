"""What one turn may use up."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from changeover_shared._errors import Invalid


@dataclass(frozen=True)
class Budget:
    """What one turn may use. It is looked at before each model step: a turn that has used it up
    fails, kind `budget`, and what it has done stays. None is no limit. Raises `Invalid`."""

    steps: int | None = None
    """Model steps."""
    tokens: int | None = None
    """Input and output tokens together, as the provider counts them."""
    cost: float | None = None
    """In the unit of the app's prices; nothing is counted for a model without a price."""

    def __post_init__(self) -> None:
        _check("steps", self.steps, whole=True)
        _check("tokens", self.tokens, whole=True)
        _check("cost", self.cost, whole=False)

    def within(self, other: Budget | None) -> Budget:
        """The tighter of both, limit by limit."""
        if other is None:
            return self
        return Budget(
            _less(self.steps, other.steps),
            _less(self.tokens, other.tokens),
            _less(self.cost, other.cost),
        )


def checked_budget(budget: object, where: str) -> Budget | None:
    """Return a budget or None; raises `Invalid` for anything else."""
    if budget is None or isinstance(budget, Budget):
        return budget
    raise Invalid(field=where, reason=f"budget is a Budget or None, not {budget!r:.80}")


def _check(name: str, value: Any, *, whole: bool) -> None:
    kinds: tuple[type, ...] = (int,) if whole else (int, float)
    fits = isinstance(value, kinds) and not isinstance(value, bool)
    if value is not None and not (fits and 0 < value <= 2**53 and math.isfinite(value)):
        kind = "a whole number" if whole else "a number"
        raise Invalid(field="budget", reason=f"{name} is {kind} over 0, not {value!r:.80}")


def _less(one: Any, other: Any) -> Any:
    return min((v for v in (one, other) if v is not None), default=None)


NO_BUDGET: Final = Budget()

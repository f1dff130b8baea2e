"""Whether a turn may ask its model once more."""

from __future__ import annotations

from dataclasses import dataclass

from changeover_shared._budget import NO_BUDGET, Budget
from changeover_shared._checkpoint import Execution
from changeover_shared._events import Failure
from changeover_worker._models.price import Price


@dataclass(frozen=True, slots=True)
class Limits:
    """What holds for every turn of an agent on this worker."""

    max_steps: int
    budget: Budget = NO_BUDGET
    """The agent's; a submission may have a tighter one."""
    price: Price | None = None
    """Of the session's model."""


def used_up(execution: Execution, limits: Limits) -> Failure | None:
    """Why the turn may take no further model step; None if it may."""
    if execution.next_step >= limits.max_steps:
        return Failure(
            kind="step_limit",
            message=f"turn reached the configured limit of {limits.max_steps} model steps",
        )
    budget = limits.budget.within(execution.budget)
    if budget.steps is not None and execution.next_step >= budget.steps:
        return _over(f"{execution.next_step} model steps", f"{budget.steps}")
    tokens = execution.usage.total_tokens
    if budget.tokens is not None and tokens >= budget.tokens:
        return _over(f"{tokens} tokens", f"{budget.tokens}")
    if budget.cost is not None and limits.price is not None:
        cost = limits.price.of(execution.usage)
        if cost >= budget.cost:
            return _over(f"{cost:.6g} of cost", f"{budget.cost:.6g}")
    return None


def _over(used: str, budget: str) -> Failure:
    return Failure(kind="budget", message=f"turn has used {used}, its budget is {budget}")

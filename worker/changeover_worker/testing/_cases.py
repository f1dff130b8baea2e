"""The cases of a sweep: which call is disturbed, when, and how."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from changeover_shared._errors import Invalid

RING: Final = "ring"
"""The call that wakes a worker: a hint, never repeated."""


class Where(StrEnum):
    """When the worker stops, seen from the call."""

    BEFORE = "before"
    """The call was not sent."""
    AFTER = "after"
    """The call was answered."""
    LOST = "lost"
    """The call ran and its reply was lost; the worker repeats it."""


class How(StrEnum):
    """What becomes of the worker there."""

    KILL = "kill"
    """It is gone. A repeat that it had in flight arrives once its successor was granted."""
    FREEZE = "freeze"
    """It stands still past its lease. Once its successor was granted, a copy of the call that it
    stands at arrives; once its successor has finished, it goes on as if it still held."""
    LIVE = "live"
    """It goes on: nothing but a reply was lost."""


@dataclass(frozen=True, slots=True)
class Case:
    """One disturbance of one call."""

    call: str
    """`commit#3`: the third commit of the undisturbed run."""
    where: Where
    how: How

    @property
    def script(self) -> str:
        """What kind of call it is."""
        return self.call.partition("#")[0]

    def __str__(self) -> str:
        return f"{self.call} {self.where} {self.how}"


def cases_of(calls: Iterable[str]) -> tuple[Case, ...]:
    """Every case of the calls of an undisturbed run."""
    return tuple(
        Case(call, where, how)
        for call in calls
        for where in Where
        for how in How
        if _makes_sense(call, where, how)
    )


def _makes_sense(call: str, where: Where, how: How) -> bool:
    if where is Where.LOST:
        return not call.startswith(RING)
    return how is not How.LIVE


THEN: Final = " then "
"""Stands between the case of a worker and that of its successor."""
TWICE: Final = ((Where.AFTER, How.KILL), (Where.LOST, How.FREEZE))
"""What both workers go through when the successor is stopped as well, both the same: what leaves
the most behind, a call whose answer nobody heard and one that comes again after the next grant."""


def pairs_of(case: Case, calls: Iterable[str]) -> tuple[tuple[Case, Case], ...]:
    """A case, and what its successor with these calls may go through after it."""
    how = (case.where, case.how)
    return tuple(
        (case, one) for one in cases_of(calls) if how in TWICE and (one.where, one.how) == how
    )


def chosen(calls: Sequence[str], only: str | None, *, twice: bool) -> tuple[Case, ...]:
    """The cases of the first worker: all, those that are followed by another, or the one that
    `only` names. Raises `Invalid` for an unknown one."""
    there = cases_of(calls)
    if only is None:
        return tuple(one for one in there if not twice or (one.where, one.how) in TWICE)
    found = tuple(case for case in there if str(case) == only.partition(THEN)[0])
    if not found:
        raise unknown(only, calls)
    return found


def unknown(only: str, calls: Sequence[str]) -> Invalid:
    """Why a case cannot be run."""
    return Invalid(
        field="only",
        reason=f"no case is called {only!r:.80}; the calls are {', '.join(calls)}, "
        "each `before kill`, `before freeze`, `after ...` or `lost ...`, and `lost live`",
        unchanged="no case was run",
    )

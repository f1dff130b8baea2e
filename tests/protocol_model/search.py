"""Breadth-first search through every order of everything, with shortest counterexamples."""

from __future__ import annotations

import time
from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from tests.protocol_model.invariants import check_world
from tests.protocol_model.naming import fingerprint
from tests.protocol_model.steps import Steps
from tests.protocol_model.world import Broken, Scenario, World, first_world


@dataclass(frozen=True)
class Found:
    """What a search came to."""

    worlds: int
    steps: int
    ends: int
    seconds: float
    broken: str = ""
    trace: tuple[str, ...] = ()
    """The shortest way to what is broken."""

    def __str__(self) -> str:
        told = f"{self.worlds} worlds, {self.steps} steps, {self.seconds:.1f} s"
        if not self.broken:
            return f"holds: {told}"
        return "\n".join([f"{self.broken} ({told})", *(f"  {one}" for one in self.trace)])


class TooLarge(Exception):
    """The search was given up; its scenario is not small enough for the limit."""


def is_end(world: World, scenario: Scenario) -> bool:
    """Everything that must come has come, everything accepted has ended, nobody is busy."""
    for act, word in zip(scenario.acts, world.words, strict=True):
        if not word and not act.optional:
            return False
    for session in world.sessions:
        if session.status not in ("idle", "none", "deleted", "closed"):
            return False
        if any(not receipt.ending for receipt in session.receipts):
            return False
    return all(worker.holding is None and worker.asking is None for worker in world.workers)


def search(
    scenario: Scenario,
    *,
    limit: int = 2_000_000,
    seen: Callable[[str, str], None] = lambda name, word: None,
) -> Found:
    """Search everything that can be reached.

    Raises:
        TooLarge: there are more than `limit` worlds.
    """
    return _Search(scenario, limit, seen).run()


class _Search:
    """Worlds are kept as 64-bit fingerprints: two that collide would hide one, at odds of 1e-7."""

    def __init__(
        self, scenario: Scenario, limit: int, seen: Callable[[str, str], None]
    ) -> None:  # fmt: skip
        self._scenario = scenario
        self._limit = limit
        self._steps = Steps(scenario, seen)
        self._numbers: dict[int, int] = {}
        self._parents = array("i")
        self._labels: list[str] = []
        self._label_of: dict[str, str] = {}
        self._queue: deque[tuple[int, World]] = deque()
        self._fair_from, self._fair_to = array("I"), array("I")
        self._ends: list[int] = []
        self._taken = 0
        self._began = time.monotonic()

    def run(self) -> Found:
        first = first_world(self._scenario)
        self._add(fingerprint(first), first, -1, "")
        while self._queue:
            number, world = self._queue.popleft()
            if is_end(world, self._scenario):
                self._ends.append(number)
            label = "what comes next"
            try:
                for step in self._steps.of(world):
                    label = step.label
                    self._take(number, step.world, label, step.fair)
                    label = "what comes next"
            except Broken as broken:
                return self._found(str(broken), (*self._way_to(number), label))
        stuck = self._stuck()
        if stuck:
            why = f"no fair way to an end from {len(stuck)} worlds"
            return self._found(why, self._way_to(stuck[0]))
        return self._found("", ())

    def _take(self, number: int, world: World, label: str, fair: bool) -> None:
        self._taken += 1
        known_as = fingerprint(world)
        following = self._numbers.get(known_as)
        if following is None:
            check_world(world, self._scenario)
            following = self._add(known_as, world, number, label)
        if fair:
            self._fair_from.append(number)
            self._fair_to.append(following)

    def _add(self, known_as: int, world: World, parent: int, label: str) -> int:
        number = len(self._labels)
        if number >= self._limit:
            raise TooLarge(f"{self._scenario.name}: more than {self._limit} worlds")
        self._numbers[known_as] = number
        self._parents.append(parent)
        self._labels.append(self._label_of.setdefault(label, label))
        self._queue.append((number, world))
        return number

    def _way_to(self, number: int) -> tuple[str, ...]:
        way = []
        while number > 0:
            way.append(self._labels[number])
            number = self._parents[number]
        return tuple(reversed(way))

    def _stuck(self) -> list[int]:
        """Worlds from which no fair steps lead to an end."""
        before: dict[int, list[int]] = {}
        for source, target in zip(self._fair_from, self._fair_to, strict=True):
            before.setdefault(target, []).append(source)
        good = bytearray(len(self._labels))
        left = list(self._ends)
        for number in left:
            good[number] = 1
        while left:
            for source in before.get(left.pop(), ()):
                if not good[source]:
                    good[source] = 1
                    left.append(source)
        return [number for number, reached in enumerate(good) if not reached]

    def _found(self, broken: str, trace: tuple[str, ...]) -> Found:
        spent = time.monotonic() - self._began
        return Found(len(self._labels), self._taken, len(self._ends), spent, broken, trace)

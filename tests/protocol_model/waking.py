"""Bells and the sweep: from every state, ready work can still be claimed by steps that will happen.

Small and exact: two partitions, two workers, rings that are lost, workers that die with a bell in
hand, a sweeper that dies while the gate is its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

LISTENING, DEAD = -1, -2
"""What a worker does; else it looks at that partition."""

FREE, LEFT_BEHIND = -1, -2
"""Whose the gate of the sweep is."""

PARTITIONS = (0, 1)


class State(NamedTuple):
    to_submit: int
    losses: int
    deaths: int
    ready: tuple[int, ...] = (0, 0)
    unrung: tuple[int, ...] = (0, 0)
    """Submissions whose caller has still to ring."""
    bells: frozenset[int] = frozenset()
    workers: tuple[int, ...] = (LISTENING, LISTENING)
    gate: int = FREE


@dataclass(frozen=True)
class Waking:
    """How workers wake, and what is left out."""

    sweeps: bool = True
    gate_runs_out: bool = True
    rings_again: bool = True

    def stuck(self, first: State) -> int:
        """From how many states no fair steps lead to nothing being ready."""
        numbers = {first: 0}
        before: dict[int, list[int]] = {}
        left = deque([first])
        while left:
            state = left.popleft()
            for following, fair in self._steps(state):
                if following not in numbers:
                    numbers[following] = len(numbers)
                    left.append(following)
                if fair:
                    before.setdefault(numbers[following], []).append(numbers[state])
        done = [n for state, n in numbers.items() if state.ready == (0, 0) and not state.to_submit]
        good = set(done)
        while done:
            for source in before.get(done.pop(), ()):
                if source not in good:
                    good.add(source)
                    done.append(source)
        return len(numbers) - len(good)

    def _steps(self, state: State) -> Iterator[tuple[State, bool]]:
        for partition in PARTITIONS:
            yield from self._producer(state, partition)
        for index, worker in enumerate(state.workers):
            yield from self._worker(state, index, worker)
        if state.gate == LEFT_BEHIND and self.gate_runs_out:
            yield state._replace(gate=FREE), True

    def _producer(self, state: State, partition: int) -> Iterator[tuple[State, bool]]:
        if state.to_submit:
            submitted = state._replace(
                to_submit=state.to_submit - 1,
                ready=_with(state.ready, partition, state.ready[partition] + 1),
                unrung=_with(state.unrung, partition, state.unrung[partition] + 1),
            )
            yield submitted, True
        if state.unrung[partition]:
            rung = state._replace(
                unrung=_with(state.unrung, partition, state.unrung[partition] - 1)
            )
            yield rung._replace(bells=state.bells | {partition}), True
            if state.losses:
                yield rung._replace(losses=state.losses - 1), False

    def _worker(self, state: State, index: int, worker: int) -> Iterator[tuple[State, bool]]:
        def doing(what: int) -> State:
            return state._replace(workers=_with(state.workers, index, what))

        if worker == DEAD:
            yield doing(LISTENING), True
            return
        if worker == LISTENING:
            for partition in state.bells:
                yield doing(partition)._replace(bells=state.bells - {partition}), True
            if self.sweeps and state.gate in (FREE, index):
                found = {partition for partition in PARTITIONS if state.ready[partition]}
                yield state._replace(bells=state.bells | found, gate=index), True
        else:
            left = max(0, state.ready[worker] - 1)
            again = {worker} if left and self.rings_again else set()
            claimed = doing(LISTENING)._replace(ready=_with(state.ready, worker, left))
            yield claimed._replace(bells=state.bells | again), True
        if state.deaths:
            gate = LEFT_BEHIND if state.gate == index else state.gate
            yield doing(DEAD)._replace(deaths=state.deaths - 1, gate=gate), False


def _with(values: tuple[int, ...], index: int, value: int) -> tuple[int, ...]:
    return (*values[:index], value, *values[index + 1 :])

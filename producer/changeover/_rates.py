"""How much is done in a minute, from what workers say that they did lately. No I/O here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from changeover_shared._results import QueueActivity, WorkerInfo


class Rates(NamedTuple):
    """Per minute."""

    turns: float = 0.0
    claims: float = 0.0
    takeovers: float = 0.0

    def plus(self, other: Rates) -> Rates:
        """Both together."""
        return Rates(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


def rates_of(worker: WorkerInfo) -> Rates:
    """What one worker does for all its queues; a silent one does nothing that is known."""
    total = Rates()
    for rates in _by_queue(worker).values():
        total = total.plus(rates)
    return total


def rates_by_queue(workers: Iterable[WorkerInfo]) -> defaultdict[str, Rates]:
    """Queue -> what all workers together do for it."""
    total: defaultdict[str, Rates] = defaultdict(Rates)
    for worker in workers:
        for queue, rates in _by_queue(worker).items():
            total[queue] = total[queue].plus(rates)
    return total


def _by_queue(worker: WorkerInfo) -> Mapping[str, Rates]:
    if worker.state == "silent" or worker.recent_ms <= 0:
        return {}
    factor = 60_000 / worker.recent_ms
    return {queue: _rates(done, factor) for queue, done in worker.activity.items()}


def _rates(done: QueueActivity, factor: float) -> Rates:
    recent = (done.recent_turns, done.recent_claims, done.recent_takeovers)
    return Rates(*(count * factor for count in recent))

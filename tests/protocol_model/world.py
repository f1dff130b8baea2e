"""The world around the scripts: workers, producers, the network, and what may still go wrong.

A request is on its way from the moment its sender decides on it. `network` holds late copies only:
of those that a sender timed out on, or that a dead worker left behind. Each may run at any later
time, or never.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias, TypeVar

from tests.protocol_model.requests import Guard, Request, Rules, View
from tests.protocol_model.session import Lease, Session

T = TypeVar("T")


class Broken(Exception):
    """An invariant does not hold."""


class Act(NamedTuple):
    """What one producer does, once."""

    kind: str
    """`message`, `answer`, `interrupt`, `cancel` or `delete`."""
    session: int = 0
    about: int = 0
    """The submission to cancel, the turn to interrupt, the life to delete."""
    policy: str = "enqueue"
    due: bool = True
    after: tuple[int, ...] = ()
    """Acts whose answers its producer has seen."""
    optional: bool = False
    """It may never come."""


class Budget(NamedTuple):
    """How often each thing may still go wrong; `faults` bounds those of the first line together."""

    faults: int = 0
    crash: int = 0
    expire: int = 0
    resend: int = 0
    lose: int = 0
    drain: int = 0
    fail_over: int = 0
    delete: int = 0
    """Quarantined sessions that an operator deletes: no fault, but a step towards the end."""
    redrive: int = 0
    """Those that an operator lets go on, with all they have or without something."""
    stop: int = 0
    defer: int = 0
    purge: int = 0


FAULTS = ("crash", "expire", "resend", "lose", "drain", "fail_over")


@dataclass(frozen=True)
class Scenario:
    """Who does what, how workers behave, and what may go wrong."""

    name: str
    acts: tuple[Act, ...]
    faults: Mapping[str, int]
    most_faults: int = 2
    sessions: int = 1
    workers: int = 2
    rules: Rules = field(default_factory=Rules)
    joins: bool = False
    """Workers take all that waits into one turn."""
    steers: bool = False
    """They take what arrives during a turn."""
    streams: bool = False
    tool: str = ""
    """What the first step asks for: `in process`, `wait`, or nothing."""
    tool_once: bool = False
    """Only the session's first turn asks for it."""
    wait: str = "approval"
    """What kind of wait that is, and whether it has a deadline."""
    deadline: bool = False
    aborts: bool = False
    """A takeover queues the turn's inputs again instead of going on."""
    goes_on: bool = False
    """A worker asks to keep the session after a turn."""
    replica: bool = False
    """There is one, and writes that leave the store wait for it."""
    forgets: bool = False
    """A failover may lose what was acknowledged and run a tool again."""
    no_crashes: bool = False

    def without(self, *guards: Guard) -> Scenario:
        """The same with guards removed from the scripts."""
        return self.changed(rules=replace(self.rules, without=frozenset(guards)))

    def changed(self, **given: Any) -> Scenario:
        return replace(self, **given)


class Holding(NamedTuple):
    """What a worker knows of the session that it holds."""

    session: int
    lease: Lease
    view: View
    origin: str
    """How it came by this view: `claimed`, from its own `step`, or `seen` in a reply."""
    tries: int = 0
    streamed: bool = False
    barred: bool = False
    """The script let it not park."""


class Worker(NamedTuple):
    boot: int = 0
    holding: Holding | None = None
    asking: Request | None = None


Copy: TypeAlias = tuple[str, int, Request]
"""A late one: `producer` or `worker`, which of them, and what it asked."""


class World(NamedTuple):
    sessions: tuple[Session, ...]
    workers: tuple[Worker, ...]
    words: tuple[str, ...]
    """What each producer was answered, '' while it waits."""
    network: tuple[Copy, ...]
    budget: Budget
    tool_runs: tuple[tuple[int, int, int], ...] = ()
    """Session, turn and how often its tool ran."""
    asked: tuple[tuple[int, int], ...] = ()
    """Sessions and turns whose wait was once open: somebody knows of it."""
    replica: tuple[Session, ...] | None = None

    def with_session(self, index: int, session: Session) -> World:
        return self._replace(sessions=_with(self.sessions, index, session))

    def with_worker(self, index: int, worker: Worker) -> World:
        return self._replace(workers=_with(self.workers, index, worker))

    def with_word(self, index: int, word: str) -> World:
        return self._replace(words=_with(self.words, index, word))

    def with_copy(self, sender: str, index: int, request: Request) -> World:
        return self._replace(network=in_order((*self.network, (sender, index, request))))

    def may(self, name: str) -> bool:
        left = getattr(self.budget, name)
        return bool(left) and (name not in FAULTS or self.budget.faults > 0)

    def spend(self, name: str) -> World:
        budget = self.budget._replace(**{name: getattr(self.budget, name) - 1})
        if name in FAULTS:
            budget = budget._replace(faults=budget.faults - 1)
            if not budget.faults:
                budget = budget._replace(**dict.fromkeys(FAULTS, 0))
        return self._replace(budget=budget)


def in_order(network: tuple[Copy, ...]) -> tuple[Copy, ...]:
    return network if len(network) < 2 else tuple(sorted(network, key=repr))


def first_world(scenario: Scenario) -> World:
    sessions = (Session(),) * scenario.sessions
    return World(
        sessions,
        (Worker(),) * scenario.workers,
        ("",) * len(scenario.acts),
        (),
        Budget(faults=scenario.most_faults, **scenario.faults),
        replica=sessions if scenario.replica else None,
    )


def _with(values: tuple[T, ...], index: int, value: T) -> tuple[T, ...]:
    return (*values[:index], value, *values[index + 1 :])

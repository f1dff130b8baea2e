"""What workers count of their work, and the rates that are read off it."""

from __future__ import annotations

from dataclasses import dataclass

from changeover._rates import Rates, rates_by_queue, rates_of
from changeover_shared._results import QueueActivity, WorkerInfo
from changeover_worker._process.activity import Activity


@dataclass
class Clock:
    """A clock that stands until it is moved."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def test_each_queue_is_counted_by_itself() -> None:
    activity = Activity(Clock())
    activity.claimed("chat", takeover=False)
    activity.claimed("chat", takeover=True)
    activity.claimed("mail", takeover=False)
    activity.turn_ended("chat")
    activity.released("chat")
    told, _ = activity.told()
    chat, mail = told["chat"], told["mail"]
    assert (chat.sessions, chat.claims, chat.takeovers, chat.turns) == (1, 2, 1, 1)
    assert (mail.sessions, mail.claims, mail.takeovers, mail.turns) == (1, 1, 0, 0)


def test_lately_is_since_the_start_at_first_and_about_a_minute_later() -> None:
    clock = Clock()
    activity = Activity(clock)
    activity.turn_ended("chat")
    clock.now += 10
    told, recent_ms = activity.told()
    assert (told["chat"].recent_turns, recent_ms) == (1, 10_000)
    for _ in range(20):
        clock.now += 10
        activity.turn_ended("chat")
        told, recent_ms = activity.told()
    assert (told["chat"].turns, told["chat"].recent_turns, recent_ms) == (21, 6, 60_000)


def test_a_worker_that_speaks_often_remembers_few_moments() -> None:
    clock = Clock()
    activity = Activity(clock)
    for _ in range(10_000):
        clock.now += 0.05
        activity.told()
    assert len(activity._before) <= 14


def test_what_was_done_long_ago_is_in_no_rate() -> None:
    clock = Clock()
    activity = Activity(clock)
    activity.claimed("chat", takeover=True)
    for _ in range(10):
        clock.now += 10
        told, _ = activity.told()
    assert (told["chat"].claims, told["chat"].recent_claims) == (1, 0)
    assert (told["chat"].takeovers, told["chat"].recent_takeovers) == (1, 0)


def test_rates_are_per_minute_and_those_of_silent_workers_are_unknown() -> None:
    chat = QueueActivity(recent_turns=10, recent_claims=4, recent_takeovers=2)
    mail = QueueActivity(recent_turns=1)
    young = WorkerInfo(
        worker="a", incarnation="a:1", activity={"chat": chat, "mail": mail}, recent_ms=30_000
    )
    silent = young.model_copy(update={"state": "silent"})
    unborn = young.model_copy(update={"recent_ms": 0})
    assert rates_of(young) == Rates(22, 8, 4)
    assert rates_of(silent) == rates_of(unborn) == Rates()
    assert rates_by_queue([young, young, silent, unborn]) == {
        "chat": Rates(40, 16, 8),
        "mail": Rates(4, 0, 0),
    }

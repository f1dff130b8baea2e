"""The circuit breaker, as a table of times and outcomes."""

from __future__ import annotations

import pytest

from changeover_worker._models.breaker import Breaker, Change, Outcome, Permit

ANSWERED, FAILED, UNKNOWN = Outcome.ANSWERED, Outcome.FAILED, Outcome.UNKNOWN


def breaker() -> Breaker:
    return Breaker(failures=5, cooldown_s=30.0)


def passed(circuit: Breaker, now: float) -> Permit:
    permit = circuit.permit(now)
    assert permit is not None
    return permit


def ended(circuit: Breaker, now: float, *outcomes: Outcome) -> list[Change | None]:
    """Let one request after the other pass and end."""
    return [circuit.ended(passed(circuit, now), outcome, now) for outcome in outcomes]


def opened(now: float = 0.0) -> Breaker:
    circuit = breaker()
    assert ended(circuit, now, *[FAILED] * 5)[-1] is Change.OPENED
    return circuit


def test_five_failures_in_a_row_open_it_for_thirty_seconds() -> None:
    circuit = breaker()

    assert ended(circuit, 100.0, *[FAILED] * 4) == [None] * 4
    assert circuit.wait_s(100.0) == 0.0
    assert ended(circuit, 100.0, FAILED) == [Change.OPENED]

    assert circuit.permit(100.0) is None
    assert circuit.wait_s(100.0) == 30.0
    assert circuit.permit(129.9) is None
    assert circuit.wait_s(129.9) == pytest.approx(0.1)
    assert circuit.permit(130.0) is not None


def test_an_answer_between_failures_begins_the_count_again() -> None:
    circuit = breaker()

    changes = ended(circuit, 0.0, *[FAILED] * 4, ANSWERED, *[FAILED] * 4)

    assert changes == [None] * 9
    assert ended(circuit, 0.0, FAILED) == [Change.OPENED]


def test_what_was_cancelled_never_counts_and_begins_no_count_again() -> None:
    circuit = breaker()

    assert ended(circuit, 0.0, *[UNKNOWN] * 50) == [None] * 50
    assert ended(circuit, 0.0, *[FAILED, UNKNOWN] * 4, FAILED)[-1] is Change.OPENED


def test_exactly_one_request_probes_it_after_the_cool_down() -> None:
    circuit = opened()

    assert circuit.permit(30.0) is not None
    assert [circuit.permit(at) for at in (30.0, 31.0, 3600.0)] == [None] * 3
    assert circuit.wait_s(3600.0) == 30.0, "if it failed now, the next would pass 30 s later"


def test_an_answered_probe_closes_it_and_begins_the_count_again() -> None:
    circuit = opened()

    assert circuit.ended(passed(circuit, 30.0), ANSWERED, 31.0) is Change.CLOSED

    assert circuit.wait_s(31.0) == 0.0
    assert ended(circuit, 31.0, *[FAILED] * 4) == [None] * 4


@pytest.mark.parametrize("outcome", [FAILED, UNKNOWN])
def test_a_failed_or_abandoned_probe_opens_it_for_another_cool_down(outcome: Outcome) -> None:
    circuit = opened()

    assert circuit.ended(passed(circuit, 30.0), outcome, 40.0) is Change.OPENED

    assert circuit.permit(69.9) is None
    assert circuit.permit(70.0) is not None


@pytest.mark.parametrize("outcome", list(Outcome))
def test_what_began_before_it_opened_changes_nothing_any_more(outcome: Outcome) -> None:
    circuit = breaker()
    early = [passed(circuit, 0.0) for _ in range(3)]
    ended(circuit, 1.0, *[FAILED] * 5)

    assert circuit.ended(early[0], outcome, 2.0) is None
    assert circuit.wait_s(2.0) == 29.0
    probe = passed(circuit, 31.0)
    assert circuit.ended(early[1], outcome, 32.0) is None
    assert circuit.permit(32.0) is None
    assert circuit.ended(probe, ANSWERED, 33.0) is Change.CLOSED
    assert circuit.ended(early[2], outcome, 34.0) is None
    assert ended(circuit, 34.0, *[FAILED] * 4) == [None] * 4


def test_failures_of_requests_at_the_same_time_count_one_by_one() -> None:
    circuit = breaker()
    permits = [passed(circuit, 0.0) for _ in range(7)]

    changes = [circuit.ended(permit, FAILED, 1.0) for permit in permits]

    assert changes == [None, None, None, None, Change.OPENED, None, None]

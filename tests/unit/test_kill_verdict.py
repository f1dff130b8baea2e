"""What became of jobs that kills have met."""

from __future__ import annotations

from benchmarks.kills.verdict import Kill, judge, read_marks


def test_a_job_that_ended_once_is_neither_lost_nor_repeated() -> None:
    found = judge(["a"], read_marks(["start a 1 10.0", "end a 1 11.0"]), [])
    assert (found.accepted, found.lost, found.repeated, found.interrupted) == (1, 0, 0, 0)


def test_a_job_that_never_ended_is_lost_whether_or_not_it_began() -> None:
    marks = read_marks(["start a 1 10.0"])
    found = judge(["a", "b"], marks, [Kill(10.5, frozenset({1}))])
    assert (found.lost, found.interrupted, found.went_on) == (2, 1, ())


def test_a_job_that_a_kill_met_goes_on_with_its_next_start() -> None:
    marks = read_marks(["start a 1 10.0", "start a 2 13.5", "end a 2 14.5"])
    found = judge(["a"], marks, [Kill(10.5, frozenset({1, 7}))])
    assert (found.lost, found.repeated, found.interrupted, found.went_on) == (0, 0, 1, (3.0,))


def test_a_kill_between_two_jobs_of_a_process_meets_neither() -> None:
    marks = read_marks(["start a 1 10.0", "end a 1 11.0", "start b 2 12.0", "end b 2 13.0"])
    assert judge(["a", "b"], marks, [Kill(11.5, frozenset({1}))]).interrupted == 0


def test_two_ends_are_a_repetition() -> None:
    marks = read_marks(["start a 1 1.0", "end a 1 2.0", "start a 2 3.0", "end a 2 4.0"])
    found = judge(["a"], marks, [Kill(2.1, frozenset({1}))])
    assert (found.repeated, found.interrupted) == (1, 0)

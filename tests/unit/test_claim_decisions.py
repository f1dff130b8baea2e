from __future__ import annotations

import pytest

from changeover_worker._process import claim_decisions as decide
from changeover_worker._process.courtesy import Courtesy
from changeover_worker._process.slots import Slots

READY = tuple(f"s:{n}" for n in range(40))


def last(n: int) -> int:
    return n - 1


def never(n: int) -> int:
    raise AssertionError(f"asked for a random number below {n}")


@pytest.mark.parametrize(("free", "batch"), [(0, 0), (1, 1), (15, 15), (16, 16), (5000, 16)])
def test_a_batch_is_never_larger_than_the_free_slots_or_sixteen(free: int, batch: int) -> None:
    assert decide.batch_size(free) == batch


@pytest.mark.parametrize(
    ("free", "rung", "batch"),
    [(0, 63, 0), (1, 63, 1), (16, 63, 1), (32, 63, 2), (200, 63, 12), (16, 3, 16), (16, 7, 8)],
)
def test_one_partition_gets_four_shares_of_what_is_free_while_others_wait(
    free: int, rung: int, batch: int
) -> None:
    """Sixteen of a partition in which one tenant waits would pass by everybody in the others."""
    assert decide.batch_size(free, rung) == batch


def test_eight_batches_are_looked_at() -> None:
    assert decide.window_size(16) == 128


def test_a_batch_starts_at_the_front_of_the_line() -> None:
    assert decide.choose(READY, 16, lossy=False, below=never) == READY[:16]


def test_after_a_lossy_batch_the_next_starts_at_a_multiple_inside_the_window() -> None:
    assert decide.choose(READY, 16, lossy=True, below=last) == READY[32:]


def test_every_start_after_a_lossy_batch_yields_something() -> None:
    for n in range(1, 41):
        for start in range(-(-n // 16)):
            assert decide.choose(READY[:n], 16, lossy=True, below=lambda _, s=start: s)  # type: ignore[misc]


def test_nothing_is_chosen_when_nothing_is_ready() -> None:
    assert decide.choose((), 16, lossy=True, below=never) == ()
    assert decide.choose(READY, 0, lossy=True, below=never) == ()


@pytest.mark.parametrize(
    ("asked", "granted", "lossy"),
    [(16, 16, False), (16, 8, False), (16, 7, True), (1, 0, True), (1, 1, False), (0, 0, False)],
)
def test_a_batch_is_lossy_when_others_got_more_than_half(
    asked: int, granted: int, lossy: bool
) -> None:
    assert decide.was_lossy(asked, granted) is lossy


def test_a_worker_rings_when_it_leaves_work_behind() -> None:
    assert decide.should_ring(waiting=17, asked=16, granted=16)
    assert not decide.should_ring(waiting=16, asked=16, granted=16)


def test_a_worker_that_got_nothing_does_not_ring() -> None:
    assert not decide.should_ring(waiting=1000, asked=16, granted=0)


def test_a_bell_is_waited_for_five_seconds_give_or_take_a_fifth() -> None:
    assert decide.listen_timeout(lambda low, high: low) == pytest.approx(4.0)
    assert decide.listen_timeout(lambda low, high: high) == pytest.approx(6.0)


def test_only_an_empty_process_hears_the_bells_of_suspects() -> None:
    assert decide.audible(["a@1", "b@1"], empty=True) == ("a@1", "b@1", "a@1!solo", "b@1!solo")
    assert decide.audible(["a@1", "b@1"], empty=False) == ("a@1", "b@1")
    assert decide.plain("a@1!solo") == "a@1"
    assert decide.is_solo("a@1!solo")
    assert not decide.is_solo("a@1")


def test_a_process_that_is_reserved_for_suspects_hears_nothing_else() -> None:
    assert decide.audible(["a@1", "b@1"], empty=True, reserved=True) == ("a@1!solo", "b@1!solo")
    assert decide.audible(["a@1"], empty=False, reserved=True) == ()


async def test_a_process_that_is_reserved_for_a_suspect_claims_nothing_until_it_is_empty() -> None:
    slots = Slots(2)
    slots.take("s:1")
    slots.reserve(True)
    assert (slots.free, slots.room.is_set()) == (0, False)
    slots.give_back("s:1")
    assert (slots.free, slots.room.is_set()) == (2, True)
    slots.take("s:2")
    slots.reserve(False)
    assert (slots.free, slots.room.is_set()) == (1, True)


def test_room_for_a_suspect_is_made_after_a_while_and_for_a_while() -> None:
    now = 0.0
    courtesy = Courtesy(patience_s=30, room_s=60, clock=lambda: now)

    def due_at(*times: float) -> list[bool]:
        nonlocal now
        answers = []
        for time in times:
            now = time
            courtesy.saw(3, waiting=True)
            answers.append(courtesy.due)
        return answers

    assert due_at(0, 29, 30, 89, 90, 119, 120) == [False, False, True, True, False, False, True]
    courtesy.saw(4, waiting=False)
    assert courtesy.due
    courtesy.saw(3, waiting=False)
    assert not courtesy.due
    assert due_at(200, 229) == [False, False]
    courtesy.forget()
    assert due_at(231) == [False]


async def test_free_slots_are_what_is_not_held() -> None:
    slots = Slots(2)
    assert slots.free == 2
    slots.take("s:1")
    slots.take("s:2")
    assert slots.free == 0
    slots.give_back("s:1")
    assert slots.free == 1


async def test_nothing_else_is_claimed_while_a_suspect_is_held() -> None:
    slots = Slots(200)
    slots.take("s:1", solo=True)
    assert slots.free == 0
    slots.give_back("s:1")
    assert slots.free == 200
    assert slots.empty


async def test_a_wait_for_room_ends_when_a_slot_is_given_back() -> None:
    slots = Slots(1)
    slots.take("s:1")
    assert not slots.room.is_set()
    slots.give_back("s:1")
    assert slots.room.is_set()
    slots.close()
    assert slots.free == 0
    assert slots.room.is_set()

"""When a failed model step is asked again, how long that takes, and when the turn parks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from changeover_shared._checkpoint import ActiveStep, Checkpoint, Execution, Retry
from changeover_shared._events import (
    Delta,
    Failure,
    StepCompleted,
    StepStarted,
    TurnParked,
    TurnResumed,
)
from changeover_shared._items import Usage
from changeover_shared._store.records import NewWait
from changeover_shared._words import CommitKind, Next, StepEnding
from changeover_worker._turn.budget import Limits
from changeover_worker._turn.draft import NO_TAIL, Draft, Onward, Tail
from changeover_worker._turn.execution import close_step
from changeover_worker._turn.retry import reopened, retried

NOW = 1_000_000
BUSY = Failure(kind="provider_server", message="503", retryable=True)
ONWARD = Onward(step_id="s_1_3_new", model="main", limits=Limits(256))


def asked(failed: int = 0, **given: object) -> Checkpoint:
    """A turn whose step 3 is in flight and has failed so often before."""
    values = {
        "turn_id": "t_1",
        "submission_ids": ("m1",),
        "started_at_ms": 10,
        "next_step": 3,
        "step": ActiveStep(step_id="s_1_3_old", index=3, started_at_ms=20),
        "model_calls": 4,
        "usage": Usage(input_tokens=100),
        "retry": Retry(attempt=failed, until_ms=5) if failed else None,
        **given,
    }
    return Checkpoint(session_id="s", model="main", execution=Execution.model_validate(values))


def execution_of(draft: Draft) -> Execution:
    assert draft.checkpoint.execution is not None
    return draft.checkpoint.execution


def after_failure(
    failure: Failure = BUSY,
    *,
    failed: int = 0,
    retries: int = 5,
    jitter: float = 1.0,
    tail: Tail = NO_TAIL,
) -> Draft | None:
    return retried(
        asked(failed),
        failure,
        tail,
        model="main",
        retries=retries,
        now_ms=NOW,
        jitter=lambda: jitter,
    )


def pause_of(draft: Draft | None) -> int:
    assert draft is not None
    retry = execution_of(draft).retry
    assert retry is not None
    return retry.until_ms - NOW


def test_a_failed_attempt_is_closed_as_retrying_and_keeps_its_index_and_its_tokens() -> None:
    tail = Tail(events=(Delta(text="Hel", step_id="s_1_3_old"),), usage=Usage(input_tokens=7))
    draft = after_failure(tail=tail)
    assert draft is not None
    delta, ended = draft.events
    assert isinstance(ended, StepCompleted)
    assert (delta, ended.index, ended.ending) == (tail.events[0], 3, StepEnding.RETRYING)
    assert (ended.step_id, ended.usage, ended.removed) == ("s_1_3_old", tail.usage, ())
    after = execution_of(draft)
    assert (after.step, after.next_step, after.usage.input_tokens) == (None, 3, 107)
    assert (draft.kind, draft.progress, draft.end, draft.items) == (
        CommitKind.RETRY, False, None, (),
    )  # fmt: skip


def test_the_pause_says_why_the_attempt_failed() -> None:
    draft = after_failure(BUSY.model_copy(update={"message": "x" * 2_000}), failed=1)
    assert draft is not None
    retry = execution_of(draft).retry
    assert retry is not None
    assert (retry.attempt, retry.error) == (2, "x" * 500)


def test_pauses_double_from_half_a_second_to_thirty() -> None:
    pauses = [pause_of(after_failure(failed=n, retries=100)) for n in range(9)]
    assert pauses == [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]
    assert pause_of(after_failure(failed=99, retries=100)) == 30_000


@pytest.mark.parametrize(("jitter", "pause"), [(0.0, 0), (0.25, 500), (1.0, 2_000)])
def test_any_part_of_a_pause_may_be_waited(jitter: float, pause: int) -> None:
    assert pause_of(after_failure(failed=2, jitter=jitter)) == pause


@pytest.mark.parametrize(("wish", "pause"), [(300, 500), (500, 500), (3_000, 3_000)])
def test_the_longer_of_the_schedule_and_the_providers_wish_is_waited(wish: int, pause: int) -> None:
    asked_to_wait = BUSY.model_copy(update={"retry_after_ms": wish})
    assert pause_of(after_failure(asked_to_wait)) == pause


@pytest.mark.parametrize(("pause", "parks"), [(5_000, False), (5_001, True), (3_600_000, True)])
def test_a_pause_of_over_five_seconds_parks(pause: int, parks: bool) -> None:
    draft = after_failure(BUSY.model_copy(update={"retry_after_ms": pause}))
    assert draft is not None
    if not parks:
        assert (draft.next, draft.waits, execution_of(draft).waits) == (Next.HOLD, (), ())
        return
    assert (draft.next, draft.waits) == (Next.PARK, (NewWait("retry", "timer", NOW + pause),))
    assert execution_of(draft).waits == ("retry",)
    parked = draft.events[-1]
    assert isinstance(parked, TurnParked)
    assert (parked.reason, parked.until_ms, parked.turn_id) == ("retry", NOW + pause, "t_1")


def test_a_long_pause_of_the_schedule_itself_parks_as_well() -> None:
    draft = after_failure(failed=4)
    assert draft is not None
    assert (draft.next, pause_of(draft)) == (Next.PARK, 8_000)


@pytest.mark.parametrize(
    "failure",
    [
        BUSY.model_copy(update={"retryable": False}),
        BUSY.model_copy(update={"retry_after_ms": 3_600_001}),
    ],
    ids=["it would not pass", "over an hour"],
)
def test_what_waiting_does_not_mend_is_not_asked_again(failure: Failure) -> None:
    assert after_failure(failure) is None


@pytest.mark.parametrize(("failed", "again"), [(0, True), (4, True), (5, False), (9, False)])
def test_a_step_is_asked_again_five_times(failed: int, again: bool) -> None:
    draft = after_failure(failed=failed)
    assert (draft is not None) is again
    if draft is not None:
        retry = execution_of(draft).retry
        assert retry is not None and retry.attempt == failed + 1


def test_without_retries_a_step_is_asked_once() -> None:
    assert after_failure(retries=0) is None


def test_the_next_attempt_has_the_same_index_another_id_and_remembers_the_failures() -> None:
    failed = after_failure(failed=1)
    assert failed is not None
    draft = reopened(failed.checkpoint, ONWARD, now_ms=NOW + 9)
    (began,) = draft.events
    assert isinstance(began, StepStarted)
    assert (began.index, began.step_id, began.model) == (3, "s_1_3_new", "main")
    after = execution_of(draft)
    assert after.step == ActiveStep(step_id="s_1_3_new", index=3, started_at_ms=NOW + 9)
    assert (after.model_calls, after.retry and after.retry.attempt) == (5, 2)
    assert (draft.kind, draft.progress, draft.closes, draft.next) == (
        CommitKind.RETRY, False, (), Next.HOLD,
    )  # fmt: skip


def test_a_turn_that_had_parked_closes_its_wait_and_says_that_it_goes_on() -> None:
    parked = after_failure(failed=4)
    assert parked is not None
    execution = execution_of(parked).model_copy(update={"waits": ("nap", "retry")})
    checkpoint = parked.checkpoint.model_copy(update={"execution": execution})
    draft = reopened(checkpoint, ONWARD, now_ms=NOW)
    assert (draft.closes, execution_of(draft).waits) == (("retry",), ("nap",))
    resumed, began = draft.events
    assert isinstance(resumed, TurnResumed) and isinstance(began, StepStarted)
    assert (resumed.reason, resumed.turn_id) == ("retry", "t_1")


def test_a_worker_that_is_leaving_opens_no_attempt() -> None:
    parked = after_failure(failed=4)
    assert parked is not None
    draft = reopened(parked.checkpoint, replace(ONWARD, step_id=None), now_ms=NOW)
    assert [event.type for event in draft.events] == ["turn_resumed"]
    after = execution_of(draft)
    assert (after.step, after.waits, after.retry) == (None, (), execution_of(parked).retry)


@pytest.mark.parametrize("ending", StepEnding)
def test_only_an_answer_ends_the_count_of_failures(ending: StepEnding) -> None:
    execution = asked(3).execution
    assert execution is not None
    after, _ = close_step(execution, ending)
    assert (after.retry is None) is (ending is StepEnding.COMPLETED)

"""What a successor does with the turn that it finds: every row of the table."""

from __future__ import annotations

from itertools import product
from typing import get_args

import pytest

from changeover_shared._checkpoint import ActiveStep, Checkpoint, Execution, PendingCall, Retry
from changeover_shared._events import StepCompleted, StepStarted, ToolCallEnd, TurnAborted
from changeover_shared._items import AssistantMessage, ToolCall, ToolResult
from changeover_shared._words import CommitKind, Effect, Ending, StepEnding
from changeover_worker._turn.budget import Limits
from changeover_worker._turn.draft import Draft, Onward
from changeover_worker._turn.recovery import (
    DECISIONS,
    Action,
    Found,
    OnTakeover,
    found,
    recover,
)

UNKNOWN = "execution interrupted; result unknown after restart"
STEP = ActiveStep(step_id="s_1_0_old", index=0, started_at_ms=20)
ONWARD = Onward(step_id="s_1_0_new", model="main", limits=Limits(256))


def execution(**given: object) -> Execution:
    values = {"turn_id": "t_1", "submission_ids": ("m1",), "started_at_ms": 10, **given}
    return Execution.model_validate(values)


def pending(*effects: Effect, done: int = 0) -> Execution:
    calls = tuple(
        PendingCall(
            call_id=f"c{i}",
            name=f"tool_{i}",
            arguments="{}",
            effect=effect,
            result=ToolResult(call_id=f"c{i}", name="t", output=1) if i < done else None,
        )
        for i, effect in enumerate(effects)
    )
    message = AssistantMessage(
        tool_calls=tuple(
            ToolCall(call_id=c.call_id, name=c.name, arguments=c.arguments) for c in calls
        )
    )
    return execution(
        phase="tools", next_step=1, assistant=message, calls=calls, tool_calls=done, model_calls=1
    )


STATES = {
    Found.NOTHING: None,
    Found.STEP: execution(step=STEP, model_calls=1),
    Found.PAUSE: execution(retry=Retry(attempt=2, until_ms=4), model_calls=2),
    Found.CALLS: pending(Effect.ONCE),
    Found.BOUNDARY: execution(next_step=1, model_calls=1),
    Found.ANSWER: execution(
        phase="completion", next_step=1, assistant=AssistantMessage(text="there it is")
    ),
}


def recovered(
    state: Execution | None, on_takeover: OnTakeover = "resume", *, takeover: bool = True
) -> Draft:
    draft = recover(
        Checkpoint(session_id="s", model="main", execution=state),
        on_takeover=on_takeover,
        onward=ONWARD,
        now_ms=5,
        takeover=takeover,
    )
    assert draft is not None
    return draft


def types(draft: Draft) -> list[str]:
    return [event.type for event in draft.events]


def test_every_state_has_a_decision_for_every_wish() -> None:
    assert set(DECISIONS) == set(product(Found, get_args(OnTakeover)))
    assert set(DECISIONS.values()) == set(Action)


@pytest.mark.parametrize("where", Found)
def test_a_checkpoint_tells_where_its_turn_stopped(where: Found) -> None:
    assert found(STATES[where]) is where


def test_without_a_turn_there_is_nothing_to_recover() -> None:
    checkpoint = Checkpoint(session_id="s")
    for wish in ("resume", "abort"):
        draft = recover(checkpoint, on_takeover=wish, onward=ONWARD, now_ms=5, takeover=True)
        assert draft is None


def test_a_step_in_flight_is_asked_again_with_its_index_under_a_new_id() -> None:
    draft = recovered(STATES[Found.STEP])
    interrupted, began = draft.events
    assert isinstance(interrupted, StepCompleted) and isinstance(began, StepStarted)
    assert (interrupted.step_id, interrupted.ending) == ("s_1_0_old", StepEnding.INTERRUPTED)
    assert (began.step_id, began.index) == ("s_1_0_new", interrupted.index)
    after = draft.checkpoint.execution
    assert after is not None and after.step is not None
    assert (after.takeovers, after.next_step, after.model_calls) == (1, 0, 2)
    assert after.step.started_at_ms >= after.started_at_ms


@pytest.mark.parametrize("wish", ["resume", "abort"])
def test_between_two_attempts_nothing_is_lost_so_the_next_one_is_asked_whatever_the_wish(
    wish: OnTakeover,
) -> None:
    draft = recovered(STATES[Found.PAUSE], wish)
    (began,) = draft.events
    assert isinstance(began, StepStarted)
    assert (draft.kind, draft.progress, draft.end) == (CommitKind.RETRY, False, None)
    after = draft.checkpoint.execution
    assert after is not None
    assert (after.takeovers, after.model_calls) == (1, 3)
    assert after.retry == Retry(attempt=2, until_ms=4)


def test_an_attempt_in_flight_keeps_its_count_through_a_takeover() -> None:
    failed = execution(step=STEP, model_calls=5, retry=Retry(attempt=4, until_ms=2))
    after = recovered(failed).checkpoint.execution
    assert after is not None and after.step is not None
    assert after.retry == Retry(attempt=4, until_ms=2)


@pytest.mark.parametrize("where", [Found.STEP, Found.CALLS, Found.BOUNDARY])
def test_a_recovery_that_goes_on_is_no_progress(where: Found) -> None:
    draft = recovered(STATES[where])
    assert (draft.kind, draft.progress, draft.end) == (CommitKind.RECOVER, False, None)
    assert draft.checkpoint.execution is not None
    assert draft.checkpoint.execution.takeovers == 1


def test_a_call_that_may_have_run_is_answered_as_unknown_and_the_turn_goes_on() -> None:
    draft = recovered(pending(Effect.ONCE))
    assert types(draft) == ["tool_call_end", "step_started"]
    ended = draft.events[0]
    assert isinstance(ended, ToolCallEnd)
    assert (ended.output, ended.is_error, ended.unknown) == (UNKNOWN, True, True)
    assert [item.type for item in draft.items] == ["assistant", "tool_result"]


def test_pure_and_idempotent_calls_stay_open_to_be_run_again() -> None:
    draft = recovered(pending(Effect.PURE, Effect.IDEMPOTENT, Effect.ONCE))
    assert types(draft) == ["tool_call_end"]
    assert draft.items == ()
    after = draft.checkpoint.execution
    assert after is not None
    assert [call.result is None for call in after.calls] == [True, True, False]


def test_a_call_that_is_run_again_is_another_attempt_and_one_that_is_not_is_none() -> None:
    once_more = recovered(pending(Effect.PURE, Effect.IDEMPOTENT, done=1))
    again = recovered(once_more.checkpoint.execution)
    for draft, attempts in ((once_more, [0, 2]), (again, [0, 3])):
        after = draft.checkpoint.execution
        assert after is not None
        assert [call.attempts for call in after.calls] == attempts


def test_a_hand_off_is_gone_on_with_and_is_no_takeover() -> None:
    draft = recovered(STATES[Found.STEP], takeover=False)
    assert types(draft) == ["step_completed", "step_started"]
    assert draft.checkpoint.execution is not None
    assert draft.checkpoint.execution.takeovers == 0


def test_results_that_were_stored_are_kept() -> None:
    draft = recovered(pending(Effect.ONCE, Effect.ONCE, done=1))
    assert [getattr(item, "output", None) for item in draft.items] == [None, 1, UNKNOWN]
    assert types(draft).count("tool_call_end") == 1


def test_a_clean_boundary_begins_the_next_step_whatever_the_agent_wants() -> None:
    for wish in ("resume", "abort"):
        assert types(recovered(STATES[Found.BOUNDARY], wish)) == ["step_started"]


def test_a_turn_that_has_its_answer_only_ends() -> None:
    for wish in ("resume", "abort"):
        draft = recovered(STATES[Found.ANSWER], wish)
        assert types(draft) == ["turn_completed"]
        assert draft.end is Ending.COMPLETED
        assert [getattr(item, "text", None) for item in draft.items] == ["there it is"]


def test_with_abort_a_step_in_flight_ends_the_turn() -> None:
    draft = recovered(STATES[Found.STEP], "abort")
    assert types(draft) == ["step_completed", "turn_aborted"]
    ended = draft.events[-1]
    assert isinstance(ended, TurnAborted) and ended.reason == "interrupted by restart"
    assert (draft.end, draft.items, draft.checkpoint.execution) == (Ending.ABORTED, (), None)


def test_with_abort_open_calls_are_answered_as_unknown_even_if_they_could_run_again() -> None:
    draft = recovered(pending(Effect.PURE, Effect.ONCE), "abort")
    assert types(draft) == ["tool_call_end", "tool_call_end", "turn_aborted"]
    assert [getattr(item, "output", None) for item in draft.items] == [None, UNKNOWN, UNKNOWN]
    record = draft.record
    assert record is not None
    assert (record.tool_calls, record.failed_tool_calls, record.takeovers) == (2, 2, 1)
    assert draft.checkpoint.stats.aborted_turns == 1


def test_recovering_the_same_checkpoint_twice_decides_the_same() -> None:
    for state in STATES.values():
        if state is not None:
            assert recovered(state) == recovered(state)

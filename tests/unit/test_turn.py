"""The turn machine's arrows: each is one commit, and the context stays valid whatever happens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import pytest

from changeover_shared._checkpoint import Checkpoint, Execution, decode_checkpoint
from changeover_shared._events import (
    AssistantSaid,
    Delta,
    Event,
    Failure,
    ModelChanged,
    StepCompleted,
    StepStarted,
    ToolCallEnd,
    TurnAborted,
    TurnCompleted,
    TurnFailed,
    Warned,
    ending_of,
)
from changeover_shared._items import AnyItem, AssistantMessage, ToolCall, ToolResult, Usage
from changeover_shared._ops import CloseOp, MessageOp, SetModelOp, TurnOp
from changeover_shared._words import CommitKind, Effect, Ending, Next, StepEnding
from changeover_worker._models.model import ModelResponse
from changeover_worker._turn.at_once import refuse
from changeover_worker._turn.budget import Limits
from changeover_worker._turn.draft import Draft, Onward, Setup, Tail, Taken, ranges
from changeover_worker._turn.ending import abort, fail
from changeover_worker._turn.start import start
from changeover_worker._turn.steps import CUT_OFF, answered, landed
from changeover_worker._turn.streamed import DROPPED_AT_ONCE, KEPT_MS, forget_streamed

E = TypeVar("E", bound=Event)

SETUP = Setup(agent="bot", queue="bot", model="main", models=("main", "other"))
NOTHING = Tail()


def begun(op: TurnOp | None = None, checkpoint: Checkpoint | None = None) -> Draft:
    return start(
        checkpoint or Checkpoint(session_id="s"),
        Taken(3, "m1", op or MessageOp(text="hello")),
        SETUP,
        turn_id="t_1",
        step_id="s_1_0_a",
        first_item=1,
        now_ms=1000,
    )


def asked(*names: str, text: str = "") -> AssistantMessage:
    calls = tuple(ToolCall(call_id=f"c{i}", name=n, arguments="{}") for i, n in enumerate(names))
    return AssistantMessage(text=text, phase="commentary", tool_calls=calls)


def onward(step_id: str | None = "s_1_1_b", max_steps: int = 256) -> Onward:
    return Onward(step_id=step_id, model="main", limits=Limits(max_steps))


def after_answer(
    message: AssistantMessage,
    *,
    stop: str | None = None,
    tail: Tail = NOTHING,
    on: Onward | None = None,
) -> Draft:
    return answered(
        begun().checkpoint,
        ModelResponse(message, Usage(input_tokens=9, output_tokens=3), stop),
        tail,
        effect_of=lambda name: Effect.ONCE,
        onward=on or onward(),
        now_ms=1400,
    )


def result(call_id: str, *, is_error: bool = False) -> ToolResult:
    return ToolResult(call_id=call_id, name="t", output="done", is_error=is_error)


def types(draft: Draft) -> list[str]:
    return [event.type for event in draft.events]


def one(draft: Draft, kind: type[E]) -> E:
    (found,) = (event for event in draft.events if isinstance(event, kind))
    return found


def execution_of(draft: Draft) -> Execution:
    assert draft.checkpoint.execution is not None
    return draft.checkpoint.execution


def is_paired(items: Iterable[AnyItem]) -> bool:
    open_ids: list[str] = []
    for item in items:
        if isinstance(item, ToolResult):
            if not open_ids or open_ids.pop(0) != item.call_id:
                return False
        elif open_ids:
            return False
        elif isinstance(item, AssistantMessage):
            open_ids = [call.call_id for call in item.tool_calls]
    return not open_ids


def test_a_message_starts_its_turn_and_its_first_step_in_one_commit() -> None:
    draft = begun()
    assert types(draft) == ["session_configured", "turn_started", "step_started"]
    assert (draft.kind, draft.turn, draft.take, draft.progress) == (
        CommitKind.START,
        "t_1",
        (3,),
        False,
    )
    assert [item.type for item in draft.items] == ["user"]
    execution = execution_of(draft)
    assert execution.step is not None and execution.step.index == 0
    assert execution.model_calls == 1
    assert draft.checkpoint.model == "main"


def test_only_the_first_commit_of_a_session_says_how_it_is_configured() -> None:
    draft = begun(checkpoint=Checkpoint(session_id="s", model="other"))
    assert types(draft) == ["turn_started", "step_started"]
    assert one(draft, StepStarted).model == "other"


def test_a_saved_model_that_is_gone_gives_way_to_the_agents_own_and_the_journal_says_so() -> None:
    draft = begun(checkpoint=Checkpoint(session_id="s", model="removed"))
    changed = one(draft, ModelChanged)
    assert (changed.model, changed.previous, changed.reason) == ("main", "removed", "unregistered")
    assert draft.checkpoint.model == "main"


def test_a_message_that_names_another_model_does_not_end_with_the_change() -> None:
    draft = begun(MessageOp(text="x", model="other"))
    assert types(draft) == ["session_configured", "model_changed", "turn_started", "step_started"]
    assert one(draft, StepStarted).model == draft.checkpoint.model == "other"
    assert all(ending_of(event, "m1") is None for event in draft.events)


def test_a_message_that_names_an_unknown_model_fails_and_keeps_the_sessions_model() -> None:
    draft = begun(MessageOp(text="x", model="nope"))
    assert types(draft) == ["session_configured", "turn_started", "turn_failed"]
    assert (draft.kind, draft.end, draft.take) == (CommitKind.START, Ending.FAILED, (3,))
    assert one(draft, TurnFailed).error.kind == "unknown_model"
    assert draft.checkpoint.model == "main"
    assert draft.checkpoint.execution is None


@pytest.mark.parametrize(
    ("given", "kept"), [(None, {"a": 1}), ({}, {}), ({"b": 2}, {"b": 2})], ids=str
)
def test_absent_metadata_keeps_and_present_metadata_replaces(given: object, kept: object) -> None:
    before = Checkpoint(session_id="s", model="main", metadata={"a": 1})
    op = MessageOp.model_validate({"text": "x", "metadata": given})
    assert begun(op, before).checkpoint.metadata == kept


def test_an_answer_without_calls_ends_the_turn_in_one_commit() -> None:
    said = AssistantMessage(text="hi")
    draft = after_answer(said, tail=Tail((Delta(text="i"),), (7, 8, 10)))
    assert types(draft) == ["delta", "assistant_message", "step_completed", "turn_completed"]
    assert draft.items == (said,)
    assert one(draft, StepCompleted).removed == ((7, 8), (10, 10))
    assert (draft.kind, draft.end, draft.next) == (CommitKind.END, Ending.COMPLETED, Next.AUTO)
    assert draft.progress
    assert draft.checkpoint.execution is None
    assert draft.record is not None
    assert (draft.record.text, draft.record.steps, draft.record.finished_at_ms) == ("hi", 1, 1400)
    stats = draft.checkpoint.stats
    assert (stats.turns, stats.model_calls, stats.elapsed_ms) == (1, 1, 400)
    assert stats.usage == Usage(input_tokens=9, output_tokens=3)


def test_a_step_costs_what_its_response_counts() -> None:
    streamed = Tail(usage=Usage(input_tokens=5))
    assert one(after_answer(AssistantMessage(text="x"), tail=streamed), StepCompleted).usage == (
        Usage(input_tokens=9, output_tokens=3)
    )


def test_calls_are_pending_in_the_commit_that_ends_their_step() -> None:
    draft = after_answer(asked("a", "b", text="let me look"))
    assert types(draft) == [
        "assistant_message",
        "step_completed",
        "tool_call_begin",
        "tool_call_begin",
    ]
    execution = execution_of(draft)
    assert [call.call_id for call in execution.calls] == ["c0", "c1"]
    assert (execution.step, execution.phase, execution.next_step) == (None, "tools", 1)
    assert draft.items == ()
    assert (draft.kind, draft.progress, draft.end) == (CommitKind.STEP, True, None)


def test_what_was_still_streaming_is_written_before_the_text_that_replaces_it() -> None:
    draft = after_answer(asked("a", text="so"), tail=Tail((Delta(text="o"),), (5, 6)))
    assert types(draft)[:2] == ["delta", "assistant_message"]
    assert draft.drop_seqs == ()
    assert one(draft, StepCompleted).removed == ((5, 6),)


def test_deltas_of_a_completed_step_go_with_a_commit_that_comes_later() -> None:
    answer = after_answer(asked("a"), tail=Tail((), (5, 6, 8)))
    soon = forget_streamed(answer, 1400 + KEPT_MS - 1)
    late = forget_streamed(answer, 1400 + KEPT_MS)
    assert (soon.drop_seqs, soon.checkpoint) == ((), answer.checkpoint)
    assert (late.drop_seqs, late.checkpoint.streamed) == ((5, 6, 8), ())


def test_one_commit_deletes_a_bounded_number_of_deltas() -> None:
    many = tuple(range(1, DROPPED_AT_ONCE + 11))
    answer = after_answer(asked("a"), tail=Tail((), many))
    first = forget_streamed(answer, 10**9)
    rest = forget_streamed(first, 10**9)
    assert (len(first.drop_seqs), len(rest.drop_seqs)) == (DROPPED_AT_ONCE, 10)
    assert first.drop_seqs + rest.drop_seqs == many
    assert rest.checkpoint.streamed == ()


def test_results_rest_in_the_checkpoint_until_the_group_is_whole() -> None:
    first = landed(
        after_answer(asked("a", "b")).checkpoint, (result("c1"),), onward=onward(), now_ms=2
    )
    assert types(first) == ["tool_call_end"]
    assert first.items == ()
    assert (first.kind, first.progress) == (CommitKind.RESULT, True)
    whole = landed(first.checkpoint, (result("c0", is_error=True),), onward=onward(), now_ms=2000)
    assert types(whole) == ["tool_call_end", "step_started"]
    assert [getattr(item, "call_id", "") for item in whole.items] == ["", "c0", "c1"]
    execution = execution_of(whole)
    assert (execution.calls, execution.assistant) == ((), None)
    assert execution.step is not None
    assert (execution.step.index, execution.step.step_id) == (1, "s_1_1_b")
    assert (execution.tool_calls, execution.failed_tool_calls) == (2, 1)


def test_a_whole_group_may_leave_the_turn_at_the_boundary() -> None:
    draft = landed(
        after_answer(asked("a")).checkpoint, (result("c0"),), onward=onward(None), now_ms=2
    )
    assert types(draft) == ["tool_call_end"]
    assert execution_of(draft).step is None
    assert is_paired(draft.items)


def test_the_step_limit_fails_the_turn_when_its_last_group_is_whole() -> None:
    before = after_answer(asked("a")).checkpoint
    draft = landed(before, (result("c0"),), onward=onward(max_steps=1), now_ms=2)
    failed = one(draft, TurnFailed)
    assert failed.error.message == "turn reached the configured limit of 1 model steps"
    assert types(draft) == ["tool_call_end", "turn_failed"]
    assert is_paired(draft.items) and len(draft.items) == 2
    assert draft.checkpoint.execution is None


def test_a_call_cut_off_by_the_length_limit_is_answered_and_never_run() -> None:
    cut = AssistantMessage(
        tool_calls=(
            ToolCall(call_id="a", name="x", arguments='{"k": 1}'),
            ToolCall(call_id="b", name="x", arguments='{"k": '),
        )
    )
    draft = after_answer(cut, stop="length")
    ended = one(draft, ToolCallEnd)
    assert (ended.call_id, ended.output, ended.is_error, ended.unknown) == (
        "b",
        CUT_OFF,
        True,
        False,
    )
    assert [call.result is None for call in execution_of(draft).calls] == [True, False]
    assert one(draft, Warned).code == "length"


def test_when_every_call_was_cut_off_the_next_step_begins_at_once() -> None:
    cut = AssistantMessage(tool_calls=(ToolCall(call_id="b", name="x", arguments="{"),))
    draft = after_answer(cut, stop="length")
    assert types(draft)[-1] == "step_started"
    assert is_paired(draft.items) and len(draft.items) == 2


def test_a_text_cut_off_by_the_length_limit_completes_with_that_stop() -> None:
    draft = after_answer(AssistantMessage(text="so far"), stop="length")
    assert one(draft, TurnCompleted).stop == "length"
    assert one(draft, Warned).code == "length"


def test_a_blank_answer_completes_with_a_warning() -> None:
    draft = after_answer(AssistantMessage(text=""))
    assert types(draft) == ["step_completed", "warning", "turn_completed"]
    assert one(draft, Warned).code == "blank_answer"


def test_repeated_and_missing_call_ids_are_told_apart() -> None:
    calls = tuple(ToolCall(call_id=i, name="x", arguments="{}") for i in ("same", "same", ""))
    draft = after_answer(AssistantMessage(tool_calls=calls))
    ids = [call.call_id for call in execution_of(draft).calls]
    assert len(set(ids)) == 3 and ids[0] == "same" and all(ids)


def test_a_call_id_that_the_conversation_has_already_is_not_used_again() -> None:
    calls = tuple(ToolCall(call_id=i, name="x", arguments="{}") for i in ("c", "c_1", "c"))
    draft = answered(
        begun().checkpoint,
        ModelResponse(AssistantMessage(tool_calls=calls)),
        NOTHING,
        effect_of=lambda name: Effect.ONCE,
        shown=(asked("x"), AssistantMessage(tool_calls=calls[:1])),
        onward=onward(),
        now_ms=1,
    )
    assert [call.call_id for call in execution_of(draft).calls] == ["c_1", "c_1_1", "c_2"]


def test_a_call_id_is_not_used_again_behind_a_summary_of_the_turns_own_beginning() -> None:
    """What the turn has called before is not shown any more, and stands in its journal."""
    execution = execution_of(begun()).model_copy(update={"first_item": 3, "next_step": 2})
    update = {"execution": execution, "context_epoch": 1, "context_from": 5}
    calls = tuple(ToolCall(call_id=i, name="x", arguments="{}") for i in ("c", "c"))
    draft = answered(
        begun().checkpoint.model_copy(update=update),
        ModelResponse(AssistantMessage(tool_calls=calls)),
        NOTHING,
        effect_of=lambda name: Effect.ONCE,
        shown=(asked("x"),),
        onward=onward(),
        now_ms=1,
    )
    assert [call.call_id for call in execution_of(draft).calls] == ["c_s2", "c_s2_1"]


def test_a_failure_in_mid_step_keeps_the_partial_text_out_of_the_transcript() -> None:
    tail = Tail((Delta(text="half"),), (4,), Usage(output_tokens=2))
    failure = Failure(kind="provider_server", message="500", retryable=True)
    draft = fail(begun().checkpoint, failure, now_ms=1500, tail=tail)
    assert types(draft) == ["delta", "step_completed", "turn_failed"]
    completed = one(draft, StepCompleted)
    assert (completed.ending, completed.removed, completed.usage.output_tokens) == (
        StepEnding.FAILED,
        (),
        2,
    )
    assert (draft.items, draft.drop_seqs) == ((), ())
    assert draft.record is not None and draft.record.error == failure
    assert draft.checkpoint.stats.failed_turns == 1


def test_an_abort_answers_open_calls_as_unknown_and_keeps_the_results_that_are_there() -> None:
    before = landed(
        after_answer(asked("a", "b")).checkpoint, (result("c0"),), onward=onward(), now_ms=2
    ).checkpoint
    draft = abort(before, "interrupted", now_ms=3000)
    assert types(draft) == ["tool_call_end", "turn_aborted"]
    ended = one(draft, ToolCallEnd)
    assert ended.output == "execution interrupted; result unknown: interrupted"
    assert ended.unknown and ended.call_id == "c1"
    assert is_paired(draft.items) and len(draft.items) == 3
    assert one(draft, TurnAborted).reason == "interrupted"
    assert (draft.end, draft.checkpoint.execution) == (Ending.ABORTED, None)
    assert draft.checkpoint.stats.aborted_turns == 1


def test_set_model_starts_and_ends_in_one_commit_with_its_own_event() -> None:
    before = Checkpoint(session_id="s", model="main")
    draft = begun(SetModelOp(model="other"), before)
    assert types(draft) == ["model_changed"]
    assert ending_of(draft.events[0], "m1") is Ending.COMPLETED
    assert (draft.kind, draft.end, draft.next, draft.progress) == (
        CommitKind.START,
        Ending.COMPLETED,
        Next.AUTO,
        True,
    )
    assert draft.checkpoint.model == "other"
    assert draft.checkpoint.stats == before.stats


def test_set_model_to_an_unknown_model_warns_fails_and_changes_nothing() -> None:
    before = Checkpoint(session_id="s", model="main")
    draft = begun(SetModelOp(model="nope"), before)
    assert types(draft) == ["warning", "turn_failed"]
    assert one(draft, Warned).code == "unknown_model"
    assert ending_of(draft.events[-1], "m1") is Ending.FAILED
    assert draft.checkpoint == before


def test_close_asks_for_the_end_of_the_session() -> None:
    draft = begun(CloseOp(reason="done"), Checkpoint(session_id="s", model="main"))
    assert types(draft) == ["session_closed"]
    assert (draft.next, draft.end, draft.kind) == (
        Next.CLOSE,
        Ending.COMPLETED,
        CommitKind.START,
    )


def test_an_op_that_nobody_knows_is_taken_and_ended_as_failed() -> None:
    failure = Failure(kind="unknown_op", message="?")
    draft = refuse(Checkpoint(session_id="s"), (5,), ("m9",), failure, turn_id="t_1", now_ms=1)
    assert (draft.take, draft.end, draft.kind) == ((5,), Ending.FAILED, CommitKind.START)
    assert ending_of(draft.events[-1], "m9") is Ending.FAILED


def test_a_checkpoint_does_not_grow_with_the_conversation() -> None:
    sizes = []
    checkpoint = Checkpoint(session_id="s", model="main")
    for k in range(1, 60):
        opened = start(
            checkpoint,
            Taken(k, f"m{k}", MessageOp(text="x" * 500)),
            SETUP,
            turn_id=f"t_{k}",
            step_id=f"s_{k}_0",
            first_item=2 * k - 1,
            now_ms=k,
        )
        ended = answered(
            opened.checkpoint,
            ModelResponse(AssistantMessage(text="y" * 500)),
            NOTHING,
            effect_of=lambda name: Effect.ONCE,
            onward=onward(),
            now_ms=k,
        )
        checkpoint = ended.checkpoint
        commit = ended.to_commit(rev=k, max_step_ms=1, next=ended.next, quantum_left=True)
        sizes.append(len(commit.checkpoint))
    assert max(sizes) - min(sizes) < 16
    assert decode_checkpoint(commit.checkpoint, session_id="s") == checkpoint


def test_each_commit_has_an_id_of_its_own() -> None:
    draft = begun()
    made = [
        draft.to_commit(rev=0, max_step_ms=1, next=draft.next, quantum_left=True) for _ in range(9)
    ]
    assert len({commit.commit_id for commit in made}) == 9


def test_ranges_join_neighbours() -> None:
    assert ranges(()) == ()
    assert ranges((1, 2, 3, 7, 9, 10)) == ((1, 3), (7, 7), (9, 10))


def test_the_assistants_committed_text_carries_its_step() -> None:
    said = one(after_answer(AssistantMessage(text="hi")), AssistantSaid)
    assert (said.step_id, said.turn_id, said.submission_id) == ("s_1_0_a", "t_1", "m1")

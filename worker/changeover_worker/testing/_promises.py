"""What holds of every session, whatever its workers went through: pure checks of what Redis keeps.

Each finding is one line that begins with the guarantee that it breaks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from changeover_shared._checkpoint import Checkpoint
from changeover_shared._events import (
    ContextCompacted,
    Event,
    StepCompleted,
    StepStarted,
    ToolCallBegin,
    ToolCallEnd,
    TurnAborted,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
    Warned,
    ending_of,
)
from changeover_shared._items import AnyItem, AssistantMessage, StepRecord, ToolResult, UserMessage
from changeover_shared._results import TurnRecord
from changeover_shared._words import Ending, StepEnding


def removed(journal: Iterable[Event]) -> set[int]:
    """The numbers of deltas that the completion of their step has said may be gone."""
    return {
        seq
        for event in journal
        if isinstance(event, StepCompleted)
        for first, last in event.removed
        for seq in range(first, last + 1)
    }


def gaps(journal: Sequence[Event]) -> list[str]:
    """Numbers that are missing, repeated or out of order, and times and fences that go back."""
    found = []
    seqs = [event.seq for event in journal]
    missing = set(range(1, max(seqs, default=0) + 1)) - set(seqs) - removed(journal)
    if missing:
        found.append(f"G4: the journal lacks {sorted(missing)}")
    if seqs != sorted(set(seqs)):
        found.append(f"G4: the journal's numbers are {seqs}")
    if [event.at_ms for event in journal] != sorted(event.at_ms for event in journal):
        found.append("G4: the journal's times go back")
    fences = [event.fence for event in journal]
    if fences != sorted(fences):
        found.append(f"G2: the journal's fences go down: {fences}")
    return found


def endings(journal: Sequence[Event], submission_ids: Iterable[str]) -> list[str]:
    """Submissions that have not exactly one terminal event."""
    found = []
    for submission_id in submission_ids:
        ends = [end for event in journal if (end := ending_of(event, submission_id)) is not None]
        if len(ends) != 1:
            found.append(f"G1: {submission_id} ended {len(ends)} times")
    return found


def tools(journal: Sequence[Event]) -> list[str]:
    """Calls that have not exactly one result."""
    begun = Counter((e.turn_id, e.call_id) for e in journal if isinstance(e, ToolCallBegin))
    ended = Counter((e.turn_id, e.call_id) for e in journal if isinstance(e, ToolCallEnd))
    return [
        f"G5: call {call} of {turn} began {begun[turn, call]} times and has "
        f"{ended[turn, call]} results"
        for turn, call in sorted(begun.keys() | ended.keys(), key=str)
        if begun[turn, call] != 1 or ended[turn, call] != 1
    ]


def steps(journal: Sequence[Event]) -> list[str]:
    """Turns that started twice, and model steps that started again after they were completed."""
    found = []
    turns = Counter(event.turn_id for event in journal if isinstance(event, TurnStarted))
    found += [f"G5: turn {turn} started {n} times" for turn, n in turns.items() if n > 1]
    names = Counter(event.step_id for event in journal if isinstance(event, StepStarted))
    found += [f"G5: step {step} started {n} times" for step, n in names.items() if n > 1]
    done: set[tuple[str | None, int]] = set()
    for event in journal:
        if isinstance(event, StepStarted) and (event.turn_id, event.index) in done:
            found.append(f"G5: step {event.index} of {event.turn_id} started after it completed")
        if isinstance(event, StepCompleted) and event.ending is StepEnding.COMPLETED:
            if (event.turn_id, event.index) in done:
                found.append(f"G5: step {event.index} of {event.turn_id} completed twice")
            done.add((event.turn_id, event.index))
    return found


def conversation(items: Sequence[AnyItem]) -> list[str]:
    """Messages that stand twice, and calls without their results right behind them."""
    said = Counter(i.submission_id for i in items if isinstance(i, UserMessage) and i.submission_id)
    found = [f"G3: the message of {one} stands {n} times" for one, n in said.items() if n > 1]
    kept = [item for item in items if not isinstance(item, StepRecord)]
    return found + [f"G7: the transcript has {what}" for what in unpaired(kept)]


def unpaired(items: Sequence[AnyItem]) -> list[str]:
    """Calls that are not followed by their results in the order of the calls, and results that
    follow no call. Not `flaw` of the turn machine, which would find itself right."""
    found = []
    at = 0
    while at < len(items):
        item = items[at]
        at += 1
        if isinstance(item, ToolResult):
            found.append(f"a result without its call: {item.call_id}")
        if isinstance(item, AssistantMessage):
            calls = [call.call_id for call in item.tool_calls]
            behind = items[at : at + len(calls)]
            answers = [r.call_id for r in behind if isinstance(r, ToolResult)]
            if answers != calls:
                found.append(f"the calls {calls} with the results {answers}")
            at += len(answers)
    return found


def records(journal: Sequence[Event], turns: Sequence[TurnRecord]) -> list[str]:
    """Finished turns without exactly one record that says the same."""
    ended = {
        TurnCompleted: Ending.COMPLETED,
        TurnAborted: Ending.ABORTED,
        TurnFailed: Ending.FAILED,
    }
    told = [
        (str(event.turn_id), ended[type(event)], event.submission_ids)
        for event in journal
        if isinstance(event, TurnCompleted | TurnAborted | TurnFailed)
    ]
    kept = [(record.turn_id, record.ending, record.submission_ids) for record in turns]
    missing = [one for one in told if kept.count(one) != 1]
    found = [f"G3: {turn} ended {how} and its record does not say so" for turn, how, _ in missing]
    names = [record.turn_id for record in turns]
    if len(names) != len(set(names)):
        found.append(f"G3: the records are of {names}")
    return found


def counted(
    checkpoint: Checkpoint, journal: Sequence[Event], turns: Sequence[TurnRecord]
) -> list[str]:
    """Statistics that are not the sum of the turns' records. What begins and ends at once, as a
    change of the model, has a record and is not counted."""
    stats = checkpoint.stats
    begun = {event.turn_id for event in journal if isinstance(event, TurnStarted)}
    turns = [record for record in turns if record.turn_id in begun]
    steps = sum(isinstance(event, StepStarted) for event in journal)
    sums = {
        "turns": (stats.turns, len(turns)),
        "failed turns": (stats.failed_turns, sum(r.ending is Ending.FAILED for r in turns)),
        "aborted turns": (stats.aborted_turns, sum(r.ending is Ending.ABORTED for r in turns)),
        "tool calls": (stats.tool_calls, sum(r.tool_calls for r in turns)),
        "failed tool calls": (stats.failed_tool_calls, sum(r.failed_tool_calls for r in turns)),
        "milliseconds": (stats.elapsed_ms, sum(r.finished_at_ms - r.started_at_ms for r in turns)),
        "tokens": (stats.usage.total_tokens, sum(r.usage.total_tokens for r in turns)),
    }
    found = [
        f"G3: the statistics count {said} {what}, the records {kept}"
        for what, (said, kept) in sums.items()
        if said != kept
    ]
    # A summary is a model call as well, and has no step.
    sums_up = any(isinstance(event, ContextCompacted | Warned) for event in journal)
    if stats.model_calls != steps and not sums_up:
        found.append(f"G3: the statistics count {stats.model_calls} model calls of {steps}")
    return found

"""What the journal tells of turns, against what the transcript and the turns' records keep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from changeover_shared._events import (
    AssistantSaid,
    ContextCompacted,
    Event,
    Message,
    StepCompleted,
    StepStarted,
    ToolCallEnd,
    TurnCompleted,
    TurnStarted,
    Warned,
)
from changeover_shared._items import (
    AnyItem,
    AssistantMessage,
    StepRecord,
    ToolResult,
    Usage,
    UserMessage,
)
from changeover_shared._results import TurnRecord


def differences(
    journal: Sequence[Event], items: Sequence[AnyItem], turns: Sequence[TurnRecord]
) -> list[str]:
    """What was told and is not kept as it was told."""
    return [
        *_inputs(journal, items),
        *_outputs(journal, items),
        *_sums(journal, turns),
        *_ranges(len(items), turns),
    ]


def _inputs(journal: Sequence[Event], items: Sequence[AnyItem]) -> list[str]:
    """Messages that a turn took and that the transcript does not have."""
    taken = {id for e in journal if isinstance(e, TurnStarted) for id in e.submission_ids}
    kept = {item.submission_id: item.text for item in items if isinstance(item, UserMessage)}
    return [
        f"G3: {event.submission_id} said {event.text!r:.80}, the transcript has "
        f"{kept.get(event.submission_id)!r:.80}"
        for event in journal
        if isinstance(event, Message)
        and event.submission_id in taken
        and kept.get(event.submission_id) != event.text
    ]


def _outputs(journal: Sequence[Event], items: Sequence[AnyItem]) -> list[str]:
    """Answers and results that are not as often in the transcript as they were told."""
    told = _count((e.call_id, e.output) for e in journal if isinstance(e, ToolCallEnd))
    kept = _count((i.call_id, i.output) for i in items if isinstance(i, ToolResult))
    asks = any(isinstance(event, StepStarted) for event in journal)
    if asks and not any(isinstance(item, StepRecord) for item in items):
        # What a handler says is not all for the transcript.
        told += _count(("bot", e.text) for e in journal if isinstance(e, AssistantSaid))
        # The text of a terminal call is its result in the transcript, no message.
        told -= _count(
            ("bot", e.text)
            for e in journal
            if isinstance(e, TurnCompleted) and isinstance(e.output, str)
        )
        kept += _count(("bot", i.text) for i in items if isinstance(i, AssistantMessage) and i.text)
    return [
        f"G3: {text!r:.80} of {who} was told {told[who, text]} times and stands "
        f"{kept[who, text]} times in the transcript"
        for who, text in sorted(told.keys() | kept.keys())
        if told[who, text] != kept[who, text]
    ]


def _count(said: Iterable[tuple[str, object]]) -> Counter[tuple[str, str]]:
    return Counter((who, str(text)) for who, text in said)


def _sums(journal: Sequence[Event], turns: Sequence[TurnRecord]) -> list[str]:
    """Records that do not count what the journal tells of their turns."""
    found = []
    for record in turns:
        mine = [event for event in journal if event.turn_id == record.turn_id]
        ends = [event for event in mine if isinstance(event, ToolCallEnd)]
        told = len(ends), sum(event.is_error for event in ends)
        kept = record.tool_calls, record.failed_tool_calls
        if told != kept:
            found.append(
                f"G3: {record.turn_id} has {told} tool calls and failures, its record {kept}"
            )
        steps = (event.usage for event in mine if isinstance(event, StepCompleted))
        spent = sum(steps, start=Usage())
        # What a summary costs is told elsewhere, and not at all if it fails.
        elsewhere = any(isinstance(event, ContextCompacted | Warned) for event in mine)
        if spent != record.usage and not elsewhere:
            found.append(f"G3: {record.turn_id} spent {spent}, its record says {record.usage}")
    return found


def _ranges(count: int, turns: Sequence[TurnRecord]) -> list[str]:
    """Items of the transcript that not exactly one record names."""
    named = Counter(n for record in turns for n in range(record.first_item, record.last_item + 1))
    wrong = sorted(n for n in named.keys() | set(range(1, count + 1)) if named[n] != (n <= count))
    return [f"G3: the records name the items {wrong} not at all, twice or in vain"] if wrong else []

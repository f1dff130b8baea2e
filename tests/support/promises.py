"""The promises, checked from what Redis holds after a run; each violation is one line of text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from changeover import SyncClient
from changeover_shared._events import (
    Event,
    Message,
    StepCompleted,
    ToolCallBegin,
    ToolCallEnd,
    ending_of,
)
from changeover_shared._items import AnyItem, AssistantMessage, ToolResult, UserMessage


@dataclass(frozen=True)
class Sent:
    """One submission that was accepted, in the order in which it was sent."""

    session: str
    id: str
    text: str


def violations(client: SyncClient, sent: Iterable[Sent]) -> list[str]:
    """Check every session of `sent`: endings, order, journal, fences, tool results, transcript."""
    by_session: dict[str, list[Sent]] = {}
    for one in sent:
        by_session.setdefault(one.session, []).append(one)
    found: list[str] = []
    for session, expected in by_session.items():
        journal = read_journal(client, session)
        found += [f"{session}: {text}" for text in broken(journal, expected)]
        found += [f"{session}: {text}" for text in unpaired(transcript(client, session), expected)]
    return found


def read_journal(client: SyncClient, session: str) -> tuple[Event, ...]:
    """A session's whole journal, oldest first."""
    events: list[Event] = []
    before: int | None = None
    while True:
        page = client.events(session, before=before, limit=1000)
        events += page.items
        if page.next is None:
            return tuple(reversed(events))
        before = int(page.next)


def transcript(client: SyncClient, session: str) -> tuple[AnyItem, ...]:
    """A session's whole transcript, oldest first."""
    items: list[AnyItem] = []
    before: int | None = None
    while True:
        page = client.transcript(session, before=before, limit=1000)
        items += [entry.item for entry in page.items]
        if page.next is None:
            return tuple(reversed(items))
        before = int(page.next)


def broken(journal: Sequence[Event], expected: Sequence[Sent]) -> list[str]:
    """What is wrong with one session's journal."""
    found = gaps(journal)
    fences = [event.fence for event in journal]
    if fences != sorted(fences):
        found.append(f"fences go down: {fences}")
    endings = Counter(
        one.id for event in journal for one in expected if ending_of(event, one.id) is not None
    )
    found += [f"{one.id} ended {endings[one.id]} times" for one in expected if endings[one.id] != 1]
    order = [e.submission_id for e in journal if isinstance(e, Message)]
    if order != [one.id for one in expected]:
        found.append(f"accepted in the order {order}")
    ended = [
        one.id for event in journal for one in expected if ending_of(event, one.id) is not None
    ]
    if ended != [one.id for one in expected]:
        found.append(f"ended in the order {ended}")
    begun = [e.call_id for e in journal if isinstance(e, ToolCallBegin)]
    results = Counter(e.call_id for e in journal if isinstance(e, ToolCallEnd))
    found += [f"call {call} has {results[call]} results" for call in begun if results[call] != 1]
    return found


def gaps(journal: Sequence[Event]) -> list[str]:
    """Numbers that are missing, apart from deltas that a completed step says may be gone."""
    removed = {
        seq
        for event in journal
        if isinstance(event, StepCompleted)
        for first, last in event.removed
        for seq in range(first, last + 1)
    }
    there = {event.seq for event in journal}
    last = max(there, default=0)
    missing = set(range(1, last + 1)) - there - removed
    return [f"journal lacks {sorted(missing)}"] if missing else []


def unpaired(items: Sequence[AnyItem], expected: Sequence[Sent]) -> list[str]:
    """Messages out of order, and calls without their results right behind them."""
    found = []
    said = [item.submission_id for item in items if isinstance(item, UserMessage)]
    if said != [one.id for one in expected]:
        found.append(f"transcript has {said}")
    for at, item in enumerate(items):
        if isinstance(item, AssistantMessage) and item.tool_calls:
            calls = [call.call_id for call in item.tool_calls]
            results = items[at + 1 : at + 1 + len(calls)]
            answered = [r.call_id for r in results if isinstance(r, ToolResult)]
            if answered != calls:
                found.append(f"calls {calls} are followed by {answered}")
    return found

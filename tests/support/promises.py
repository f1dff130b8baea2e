"""The promises, checked from what Redis holds after a run; each violation is one line of text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from changeover import SyncClient
from changeover_shared._events import Event, Message, ending_of
from changeover_shared._items import AnyItem, UserMessage
from changeover_worker.testing._promises import conversation, endings, gaps, steps, tools


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
    ids = [one.id for one in expected]
    found = [*gaps(journal), *endings(journal, ids), *tools(journal), *steps(journal)]
    order = [e.submission_id for e in journal if isinstance(e, Message)]
    if order != ids:
        found.append(f"accepted in the order {order}")
    ended = [id for event in journal for id in ids if ending_of(event, id) is not None]
    if ended != ids:
        found.append(f"ended in the order {ended}")
    return found


def unpaired(items: Sequence[AnyItem], expected: Sequence[Sent]) -> list[str]:
    """Messages out of order, and calls without their results right behind them."""
    said = [item.submission_id for item in items if isinstance(item, UserMessage)]
    found = [] if said == [one.id for one in expected] else [f"transcript has {said}"]
    return [*found, *conversation(items)]

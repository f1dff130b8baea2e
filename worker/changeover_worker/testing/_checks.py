"""G1 to G8, checked of a world in which everything has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from changeover_shared._checkpoint import Checkpoint, decode_checkpoint
from changeover_shared._events import Delta, Event, StepCompleted, ToolCallBegin, ending_of
from changeover_shared._results import TranscriptItem, TurnRecord
from changeover_shared._store.records import Snapshot
from changeover_shared._words import Effect, StepEnding
from changeover_worker.testing import _promises as promises
from changeover_worker.testing import _told as told
from changeover_worker.testing._cases import Case
from changeover_worker.testing._watched import Watch
from changeover_worker.testing._world import World

PAGE = 1000


@dataclass(frozen=True)
class Session:
    """All that Redis keeps of a session."""

    session_id: str
    now: Snapshot
    journal: tuple[Event, ...]
    transcript: tuple[TranscriptItem, ...]
    turns: tuple[TurnRecord, ...]
    checkpoint: Checkpoint


async def broken(world: World, watch: Watch) -> list[str]:
    """Every promise that was broken, one line each."""
    found = list(watch.wrong)
    for session_id in sorted(world.followers):
        session = await _read(world, session_id)
        if session is None:
            continue
        accepted = [(id, control) for s, id, control in world.accepted if s == session_id]
        found += await _g1(world, session, accepted)
        found += _g2(world, session)
        found += _g3(world, session)
        found += promises.gaps(session.journal)
        found += promises.steps(session.journal)
        found += promises.tools(session.journal)
        found += _g6(watch, session)
        found += promises.conversation([entry.item for entry in session.transcript])
        found += _streams(watch, world.follow(session_id).seen)
        found += await _g8(world, session)
    # The request for a summary belongs to no step.
    repeated = {step for step in watch.asked if step and watch.asked.count(step) > 1}
    return found + [f"G5: a model was asked twice for step {step}" for step in sorted(repeated)]


def answered_alike(case: Case, answers: Sequence[Any]) -> list[str]:
    """A repeated write that was not answered as the first one was."""
    if len(answers) == 2 and case.script == "claim":
        first, again = ([answer[:2] for answer in reply[1]] for reply in answers)
        return [] if first == again else [f"G3: {case.call} answered {first}, its repeat {again}"]
    if len(answers) < 2 or case.script not in _REPEATED:
        return []
    first, again = answers
    compared = slice(*_REPEATED[case.script])
    if first[compared] == again[compared] and again[0] in (first[0], *_ONCE_MORE):
        return []
    return [f"G3: {case.call} answered {first[0]}, its repeat {again[0]}"]


_REPEATED: Final = {"commit": (2, None), "append": (1, 2), "give_up": (0, None)}
"""Which values of an answer a repeat must have as well: not whether the lease stands by now."""
_ONCE_MORE: Final = ("REPLAY", "ALREADY")


async def _g1(world: World, session: Session, accepted: list[tuple[str, bool]]) -> list[str]:
    ids = [id for id, _ in accepted]
    found = promises.endings(session.journal, [id for id, control in accepted if not control])
    states = await world.store.submissions([(session.session_id, id) for id in ids])
    by_seq = {event.seq: event for event in session.journal}
    for (id, control), state in zip(accepted, states, strict=True):
        if state is None or state.ending is None:
            found.append(f"G1: the receipt of {id} says that it has not ended")
            continue
        event = by_seq.get(state.end_seq)
        if not control and (event is None or ending_of(event, id) is not state.ending):
            found.append(
                f"G1: the receipt of {id} says {state.ending}, event {state.end_seq} says "
                f"{event.type if event else 'nothing'}"
            )
    if session.now.work.waiting or session.now.work.waits or session.now.head.turn:
        found.append(f"G1: work is left open: {session.now.work}, turn {session.now.head.turn!r}")
    return found


def _g2(world: World, session: Session) -> list[str]:
    granted = [fence for fence, _ in world.grants.get(session.session_id, [])]
    found = []
    if granted != list(range(1, len(granted) + 1)):
        found.append(f"G2: the fences of the grants are {granted}")
    if session.now.head.fence != len(granted):
        found.append(f"G2: fence {session.now.head.fence} after {len(granted)} grants")
    strange = {event.fence for event in session.journal} - {0, *granted}
    if strange:
        found.append(f"G2: events of fences that nobody was granted: {sorted(strange)}")
    if session.now.owner:
        found.append(f"G2: it is still held by {session.now.owner}")
    return found


def _g3(world: World, session: Session) -> list[str]:
    commits = world.commits.get(session.session_id, 0)
    found = promises.records(session.journal, session.turns)
    found += promises.counted(session.checkpoint, session.journal, session.turns)
    items = [entry.item for entry in session.transcript]
    found += told.differences(session.journal, items, session.turns)
    if session.now.head.rev != commits:
        found.append(f"G3: revision {session.now.head.rev} after {commits} commits")
    numbers = [entry.n for entry in session.transcript]
    if numbers != list(range(1, session.now.head.transcript_n + 1)):
        found.append(
            f"G3: the transcript has {numbers} and should end at {session.now.head.transcript_n}"
        )
    if session.checkpoint.execution is not None:
        found.append("G3: the checkpoint has an open turn and the head has none")
    return found


def _g6(watch: Watch, session: Session) -> list[str]:
    effects = {
        (event.turn_id, event.call_id): event.effect
        for event in session.journal
        if isinstance(event, ToolCallBegin)
    }
    found = []
    for (session_id, turn, call), times in watch.started.items():
        if session_id != session.session_id or (session_id, turn, call) in watch.steps:
            continue  # Steps of handlers have had their check as they ran.
        effect = effects.get((turn, call))
        if effect is None:
            found.append(f"G6: call {call} ran and was never committed")
        elif (session_id, turn, call) in watch.early:
            found.append(f"G6: call {call} started before it was committed")
        if effect is Effect.ONCE and times > 1:
            found.append(f"G6: call {call} is `once` and started {times} times")
    return found


def _streams(watch: Watch, seen: Sequence[Event]) -> list[str]:
    """Steps whose delivered text is not what the model said."""
    shown: dict[str, str] = {}
    completed = set()
    for event in seen:
        if isinstance(event, Delta) and event.step_id:
            shown[event.step_id] = shown.get(event.step_id, "") + event.text
        if isinstance(event, StepCompleted) and event.ending is StepEnding.COMPLETED:
            completed.add(event.step_id)
    found = []
    for step_id, pieces in watch.emitted.items():
        said = "".join(pieces)
        heard = shown.get(step_id, "")
        whole = heard.startswith(said) if step_id in completed else said.startswith(heard)
        if not whole:
            found.append(f"G8: step {step_id} said {said!r:.80} and {heard!r:.80} was delivered")
    return found


async def _g8(world: World, session: Session) -> list[str]:
    found = []
    gone = promises.removed(session.journal)
    there = {event.seq: event for event in session.journal}
    seen = world.follow(session.session_id).seen
    numbers = [event.seq for event in seen]
    if numbers != sorted(set(numbers)):
        found.append(f"G8: a follower was given {numbers}")
    for event in seen:
        durable = there.get(event.seq)
        if durable is None and event.seq not in gone:
            found.append(f"G8: event {event.seq} was delivered and is not in the journal")
        if durable is not None and durable != event:
            found.append(f"G8: event {event.seq} was delivered as something else")
    lost = there.keys() - set(numbers)
    if lost:
        found.append(f"G8: a follower was not given {sorted(lost)}")
    last = session.journal[-1].seq if session.journal else 0
    pages = await asyncio.gather(
        *(world.store.journal(session.session_id, after=seq, limit=PAGE) for seq in range(last))
    )
    for seq, page in enumerate(pages):
        if page != tuple(e for e in session.journal if e.seq > seq)[:PAGE]:
            found.append(f"G8: who reconnects with {seq} is given {[e.seq for e in page]}")
    return found


async def _read(world: World, session_id: str) -> Session | None:
    now = await world.store.snapshot(session_id)
    if now is None:
        return None
    journal: list[Event] = []
    while page := await world.store.journal(
        session_id, after=journal[-1].seq if journal else 0, limit=PAGE
    ):
        journal += page
    items = await world.store.transcript_back(session_id, before=None, limit=100_000)
    turns = await world.store.turns_back(session_id, before=None, limit=100_000)
    body = now.checkpoint
    checkpoint = Checkpoint(session_id=session_id)
    if body is not None:
        checkpoint = decode_checkpoint(body, session_id=session_id)
    return Session(
        session_id,
        now,
        tuple(journal),
        tuple(sorted(items, key=lambda entry: entry.n)),
        tuple(record for _, record in reversed(turns)),
        checkpoint,
    )

"""Wait for submissions to end by looking at their receipts: no connection and no task each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from datetime import timedelta

from changeover._answers import outcome_of
from changeover._backoff import pauses
from changeover_shared._errors import (
    StoreUnavailable,
    UnknownSession,
    UnknownSubmission,
    WaitTimeout,
)
from changeover_shared._results import Outcome, Receipt, at
from changeover_shared._store.records import SubmissionState
from changeover_shared._store.store import Store

READS = 64
"""How many receipts are read at once."""
MIN_PAUSE_S = 0.02
MAX_PAUSE_S = 0.5
PATIENCE_S = 30.0
"""How long a wait rides out an outage of Redis."""

Pair = tuple[str, str]


async def wait_for(store: Store, pair: Pair, timeout_s: float | None) -> Outcome:
    """Answer with how one submission ended, seen at most an eighth of its time too late."""
    started = time.monotonic()
    while True:
        try:
            found = (await _look(store, [pair]))[0]
        except StoreUnavailable as error:
            # The caller may never have seen the id: `run` mints one.
            raise StoreUnavailable(reason=error.reason, submission_id=pair[1]) from error
        if found is None:
            raise await _unknown(store, pair)
        if isinstance(found, Outcome):
            return found
        waited = time.monotonic() - started
        pause = min(MAX_PAUSE_S, max(MIN_PAUSE_S, waited / 8))
        if timeout_s is not None:
            if waited >= timeout_s:
                raise await _timeout(store, pair, found, waited)
            pause = min(pause, timeout_s - waited)
        await asyncio.sleep(pause)


async def wait_for_many(
    store: Store, receipts: Iterable[Receipt], timeout_s: float | None
) -> AsyncGenerator[Outcome]:
    """Yield each outcome as it is seen; a submission that nobody knows is raised at the end."""
    started = time.monotonic()
    waiting = [(receipt.session_id, receipt.submission_id) for receipt in receipts]
    unknown: list[Pair] = []
    pause = MIN_PAUSE_S
    while waiting:
        began = time.monotonic()
        late: list[tuple[Pair, SubmissionState]] = []
        for start in range(0, len(waiting), READS):
            pairs = waiting[start : start + READS]
            for pair, found in zip(pairs, await _look(store, pairs), strict=True):
                if found is None:
                    unknown.append(pair)
                elif isinstance(found, Outcome):
                    yield found
                else:
                    late.append((pair, found))
        now = time.monotonic()
        if late and timeout_s is not None and now - started >= timeout_s:
            raise await _timeout(store, *late[0], now - started)
        pause = MIN_PAUSE_S if len(late) < len(waiting) else min(MAX_PAUSE_S, pause * 2)
        waiting = [pair for pair, _ in late]
        if waiting:
            await asyncio.sleep(_pause_s(pause, now - began, started, timeout_s))
    for pair in unknown:
        raise await _unknown(store, pair)


def _pause_s(pause: float, took: float, started: float, timeout_s: float | None) -> float:
    """At least as long as the round took, so that waiting costs Redis half its time at most."""
    span = min(MAX_PAUSE_S, max(pause, took))
    if timeout_s is None:
        return span
    return max(0.0, min(span, started + timeout_s - time.monotonic()))


async def _look(store: Store, pairs: Sequence[Pair]) -> list[Outcome | SubmissionState | None]:
    """Read receipts, and the turns of those that ended.

    An outage of Redis is raised only once it has lasted `PATIENCE_S`.
    """
    give_up_at = time.monotonic() + PATIENCE_S
    backoff = pauses()
    while True:
        try:
            states = await store.submissions(pairs)
            return await _with_turns(store, pairs, states)
        except StoreUnavailable:
            if time.monotonic() >= give_up_at:
                raise
        await asyncio.sleep(next(backoff))


async def _with_turns(
    store: Store, pairs: Sequence[Pair], states: Sequence[SubmissionState | None]
) -> list[Outcome | SubmissionState | None]:
    """The outcomes of what ended, made with one read of their turns; the rest as it is."""
    ended = [
        (session_id, state)
        for (session_id, _), state in zip(pairs, states, strict=True)
        if state is not None and state.ending is not None
    ]
    turns = {(session_id, state.turn) for session_id, state in ended if state.turn}
    named = sorted(turns)
    records = dict(zip(named, await store.turns_of(named) if named else (), strict=True))
    outcomes = {
        (session_id, state.submission_id): outcome_of(
            session_id, state, records.get((session_id, state.turn))
        )
        for session_id, state in ended
    }
    return [outcomes.get(pair, state) for pair, state in zip(pairs, states, strict=True)]


async def _unknown(store: Store, pair: Pair) -> UnknownSession | UnknownSubmission:
    if await store.snapshot(pair[0]) is None:
        return UnknownSession(session_id=pair[0])
    return UnknownSubmission(session_id=pair[0], submission_id=pair[1])


async def _timeout(
    store: Store, pair: Pair, state: SubmissionState, waited_s: float
) -> WaitTimeout:
    receipt = Receipt(session_id=pair[0], submission_id=pair[1], answer="accepted", seq=state.seq)
    due_ms = await _due_ms(store, pair[0], state)
    return WaitTimeout(
        receipt=receipt,
        waited=timedelta(seconds=waited_s),
        due=at(due_ms) if due_ms > await store.now_ms() else None,
    )


async def _due_ms(store: Store, session_id: str, state: SubmissionState) -> int:
    """When a submission that has not ended may run; 0 for at once, or if nobody can be asked."""
    try:
        return await store.due_ms(session_id, state.n)
    except StoreUnavailable:
        return 0

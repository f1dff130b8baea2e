# Written by tools/generate_sync.py from _wait.py: change that file instead.
"""Wait for submissions to end by looking at their receipts: no connection and no task each."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Sequence
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
from changeover_shared._store.sync_store import SyncStore

READS = 64
"""How many receipts are read at once."""
MIN_PAUSE_S = 0.02
MAX_PAUSE_S = 0.5
PATIENCE_S = 30.0
"""How long a wait rides out an outage of Redis."""

Pair = tuple[str, str]


def wait_for(store: SyncStore, pair: Pair, timeout_s: float | None) -> Outcome:
    """Answer with how one submission ended, seen at most an eighth of its time too late."""
    started = time.monotonic()
    while True:
        try:
            found = (_look(store, [pair]))[0]
        except StoreUnavailable as error:
            # The caller may never have seen the id: `run` mints one.
            raise StoreUnavailable(reason=error.reason, submission_id=pair[1]) from error
        if found is None:
            raise _unknown(store, pair)
        if isinstance(found, Outcome):
            return found
        waited = time.monotonic() - started
        pause = min(MAX_PAUSE_S, max(MIN_PAUSE_S, waited / 8))
        if timeout_s is not None:
            if waited >= timeout_s:
                raise _timeout(store, pair, found, waited)
            pause = min(pause, timeout_s - waited)
        time.sleep(pause)


def wait_for_many(
    store: SyncStore, receipts: Iterable[Receipt], timeout_s: float | None
) -> Generator[Outcome]:
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
            for pair, found in zip(pairs, _look(store, pairs), strict=True):
                if found is None:
                    unknown.append(pair)
                elif isinstance(found, Outcome):
                    yield found
                else:
                    late.append((pair, found))
        now = time.monotonic()
        if late and timeout_s is not None and now - started >= timeout_s:
            raise _timeout(store, *late[0], now - started)
        pause = MIN_PAUSE_S if len(late) < len(waiting) else min(MAX_PAUSE_S, pause * 2)
        waiting = [pair for pair, _ in late]
        if waiting:
            time.sleep(_pause_s(pause, now - began, started, timeout_s))
    for pair in unknown:
        raise _unknown(store, pair)


def _pause_s(pause: float, took: float, started: float, timeout_s: float | None) -> float:
    """At least as long as the round took, so that waiting costs Redis half its time at most."""
    span = min(MAX_PAUSE_S, max(pause, took))
    if timeout_s is None:
        return span
    return max(0.0, min(span, started + timeout_s - time.monotonic()))


def _look(store: SyncStore, pairs: Sequence[Pair]) -> list[Outcome | SubmissionState | None]:
    """Read receipts, and the turns of those that ended.

    An outage of Redis is raised only once it has lasted `PATIENCE_S`.
    """
    give_up_at = time.monotonic() + PATIENCE_S
    backoff = pauses()
    while True:
        try:
            states = store.submissions(pairs)
            return _with_turns(store, pairs, states)
        except StoreUnavailable:
            if time.monotonic() >= give_up_at:
                raise
        time.sleep(next(backoff))


def _with_turns(
    store: SyncStore, pairs: Sequence[Pair], states: Sequence[SubmissionState | None]
) -> list[Outcome | SubmissionState | None]:
    """The outcomes of what ended, made with one read of their turns; the rest as it is."""
    ended = [
        (session_id, state)
        for (session_id, _), state in zip(pairs, states, strict=True)
        if state is not None and state.ending is not None
    ]
    turns = {(session_id, state.turn) for session_id, state in ended if state.turn}
    named = sorted(turns)
    records = dict(zip(named, store.turns_of(named) if named else (), strict=True))
    outcomes = {
        (session_id, state.submission_id): outcome_of(
            session_id, state, records.get((session_id, state.turn))
        )
        for session_id, state in ended
    }
    return [outcomes.get(pair, state) for pair, state in zip(pairs, states, strict=True)]


def _unknown(store: SyncStore, pair: Pair) -> UnknownSession | UnknownSubmission:
    if store.snapshot(pair[0]) is None:
        return UnknownSession(session_id=pair[0])
    return UnknownSubmission(session_id=pair[0], submission_id=pair[1])


def _timeout(store: SyncStore, pair: Pair, state: SubmissionState, waited_s: float) -> WaitTimeout:
    receipt = Receipt(session_id=pair[0], submission_id=pair[1], answer="accepted", seq=state.seq)
    due_ms = _due_ms(store, pair[0], state)
    return WaitTimeout(
        receipt=receipt,
        waited=timedelta(seconds=waited_s),
        due=at(due_ms) if due_ms > store.now_ms() else None,
    )


def _due_ms(store: SyncStore, session_id: str, state: SubmissionState) -> int:
    """When a submission that has not ended may run; 0 for at once, or if nobody can be asked."""
    try:
        return store.due_ms(session_id, state.n)
    except StoreUnavailable:
        return 0

"""`commit`: guards in their order, then everything that one step changes."""

from __future__ import annotations

from tests.protocol_model.producer_scripts import Answered
from tests.protocol_model.requests import Commit, Guard, Reply, Rules, view
from tests.protocol_model.session import (
    EndedTurn,
    Session,
    place,
    ready,
    settle,
    settle_control,
    wait_of,
    waiting,
)
from tests.protocol_model.worker_scripts import refused_write

DONE = ("completed", "failed", "aborted")
"""Endings that a turn's inputs share; a requeue is none."""

BARRED = ("completed", "requeue")
"""How an interrupted turn cannot end."""


def commit(session: Session, asked: Commit, rules: Rules) -> Answered:
    if session.commit_id == asked.commit_id and rules.keep(Guard.COMMIT_REPLAY):
        held = session.lease == asked.lease and not session.expired
        if not rules.keep(Guard.REPLAY_SAYS_GONE):
            held = True
        return session, Reply("REPLAY", "held" if held else "gone", view=view(session))
    if refusal := refused_write(session, asked.lease, rules) or _refusal(session, asked, rules):
        return session, Reply(refusal, view=view(session))
    session = _apply(session, asked, rules)
    if asked.finish:
        session = _end_turn(session, asked, rules)
    if asked.next == "close":
        for one in session.inputs:
            session = settle(session, one.submission, "cancelled")
        session = session._replace(status="closed")
    if asked.next == "quarantine":
        quarantines = session.quarantines + 1
        session = session._replace(status="quarantined", quarantines=quarantines)
    if asked.progress:
        session = session._replace(attempts=0, attempts_before=0)
    session = _next(session, asked, rules)
    return session, Reply("OK", "held" if session.lease else "gone", view=view(session))


def _refusal(session: Session, asked: Commit, rules: Rules) -> str:
    starts = asked.kind == "start"
    if rules.keep(Guard.REVISION):
        if session.revision < asked.revision and rules.keep(Guard.REWOUND):
            return "REWOUND"
        if session.revision != asked.revision:
            return "CONFLICT"
        if session.turn != (0 if starts else asked.turn):
            return "CONFLICT"
        if starts and asked.turn != session.turns + 1:
            return "CONFLICT"
        if not asked.turn and (asked.finish or asked.take):
            return "CONFLICT"
    barred = asked.finish in BARRED and session.control is not None and session.turn
    if barred and rules.keep(Guard.CONTROL_BARS_COMPLETION):
        return "CONTROL"
    if not _inputs_fit(session, asked, rules):
        return "INPUT"
    if asked.next == "park" and not _may_park(session, asked, rules):
        return "BAD_PARK"
    if asked.next == "close" and not asked.finish:
        return "BAD_PARK"
    if asked.next == "quarantine" and asked.finish:
        return "BAD_PARK"
    return ""


def _inputs_fit(session: Session, asked: Commit, rules: Rules) -> bool:
    """What is taken waits, groups are whole; what is consumed is answered, what closes is not."""
    if asked.kind in ("start", "take") and not asked.take:
        return False
    if rules.keep(Guard.TAKE) and not set(asked.take) <= {one.n for one in waiting(session)}:
        return False
    groups = {one.group for one in session.inputs if one.n in asked.take and one.group}
    if rules.keep(Guard.GROUP):
        for one in session.inputs:
            if one.waits and one.group in groups and one.n not in asked.take:
                return False
    for name, answer in asked.consume:
        wait = wait_of(session, name)
        if wait is None or not wait.answer or wait.answer != answer:
            return False
    for name in asked.closes:
        wait = wait_of(session, name)
        if wait is None or (wait.answer and rules.keep(Guard.CLOSE_UNANSWERED)):
            return False
    names = [name for name, _ in asked.consume] + list(asked.closes)
    return len(names) == len(set(names))


def _may_park(session: Session, asked: Commit, rules: Rules) -> bool:
    if not asked.turn or asked.finish:
        return False
    over = {name for name, _ in asked.consume} | set(asked.closes)
    waits = [*(wait for wait in session.waits if wait.name not in over), *asked.opens]
    bounded = all(wait.deadline or wait.answer or wait.kind != "job" for wait in waits)
    return bool(waits) and (bounded or not rules.keep(Guard.PARK_NEEDS_DEADLINE))


def _apply(session: Session, asked: Commit, rules: Rules) -> Session:
    """The revision, what is taken, and the waits."""
    turn = asked.turn
    session = session._replace(
        revision=session.revision + 1,
        commit_id=asked.commit_id,
        checkpoint=asked.checkpoint,
        inputs=tuple(
            one._replace(turn=turn, group=0) if one.n in asked.take else one
            for one in session.inputs
        ),
    )
    history = session.history
    if asked.kind == "start":
        session = session._replace(turn=session.turns + 1, turns=session.turns + 1)
        history = history._replace(deltas=0)
    if asked.kind == "step":
        history = history._replace(stepped=turn)
    if asked.kind in ("step", "result", "answer") or asked.finish in DONE:
        history = history._replace(grants=0)
    session = session._replace(history=history)
    over = {name for name, _ in asked.consume} | set(asked.closes)
    opened = {wait.name for wait in asked.opens}
    kept = tuple(wait for wait in session.waits if wait.name not in over | opened)
    session = session._replace(waits=tuple(sorted((*kept, *asked.opens))))
    for _, answer in asked.consume:
        consumed = next(one for one in session.inputs if one.n == answer)
        session = settle(session, consumed.submission, "completed")
    return session


def _end_turn(session: Session, asked: Commit, rules: Rules) -> Session:
    turn = session.turn
    for one in session.inputs:
        if one.turn != turn:
            continue
        if one.kind == "answer":
            if rules.keep(Guard.END_SETTLES_ANSWERS):
                session = settle(session, one.submission, "superseded")
        elif asked.finish != "requeue":
            session = settle(session, one.submission, asked.finish)
    if asked.finish == "requeue":
        again = tuple(
            one._replace(turn=0, group=turn) if one.turn == turn and one.kind != "answer" else one
            for one in session.inputs
        )
        session = session._replace(inputs=again)
    sound = asked.finish != "completed" or (
        session.control is None and session.history.stepped == turn
    )
    ended = (*session.history.ended, EndedTurn(turn, asked.finish, sound))
    if rules.keep(Guard.END_SETTLES_CONTROL):
        session = settle_control(session, "completed")
    return session._replace(
        turn=0,
        control=None,
        waits=(),
        history=session.history._replace(ended=ended),
    )


def _next(session: Session, asked: Commit, rules: Rules) -> Session:
    """Keep the lease or end it, and place."""
    keep = asked.next == "hold"
    if asked.next == "auto":
        keep = bool(waiting(session)) and asked.quantum
    if asked.next == "park":
        session = session._replace(parked=True)
        keep = ready(session._replace(lease=None)) and rules.keep(Guard.PARK_LOOKS)
        if keep:
            session = session._replace(parked=False)
    if keep:
        return place(session)
    history = session.history
    if asked.next == "park" or asked.finish == "requeue":
        history = history._replace(grants=max(0, history.grants - 1))
    session = session._replace(
        lease=None,
        released=asked.lease,
        attempts=session.attempts_before,
        history=history,
    )
    placed = place(session)
    if asked.next == "park" and not rules.keep(Guard.PARK_LOOKS):
        placed = placed._replace(status="parked")
    if asked.next == "park" and not rules.keep(Guard.PARK_KEEPS_TIMER):
        placed = placed._replace(timed=False)
    if asked.next == "release" and not rules.keep(Guard.RELEASE_LOOKS):
        placed = placed._replace(status="idle")
    if asked.next == "release" and not rules.keep(Guard.RELEASE_KEEPS_TIMER):
        placed = placed._replace(timed=False)
    return placed

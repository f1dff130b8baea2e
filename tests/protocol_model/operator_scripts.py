"""`quarantine`, `redrive` and `dead_letter`: what an operator does to a session."""

from __future__ import annotations

from tests.protocol_model.producer_scripts import Answered
from tests.protocol_model.requests import Guard, Redrive, Reply, Rules, Stop
from tests.protocol_model.session import (
    EVERYTHING,
    EndedTurn,
    Session,
    place,
    settle,
    settle_control,
)


def quarantined(session: Session) -> Session:
    """Stopped, whoever held it."""
    return place(session._replace(status="quarantined", quarantines=session.quarantines + 1))


def stop(session: Session, asked: Stop, rules: Rules) -> Answered:
    if asked.late and rules.keep(Guard.NOT_AFTER_SUBMIT):
        return session, Reply("LATE")
    if session.status in ("none", "closed", "deleted"):
        return session, Reply("STALE")
    if session.status == "quarantined" or session.quarantines == asked.number:
        return session, Reply("OK")
    if session.quarantines + 1 != asked.number:
        return session, Reply("STALE")
    if session.lease is not None:
        grants = max(0, session.history.grants - 1)
        session = session._replace(
            lease=None,
            expired=False,
            attempts=session.attempts_before,
            history=session.history._replace(grants=grants),
        )
    return quarantined(session), Reply("OK")


def redrive(session: Session, asked: Redrive, rules: Rules) -> Answered:
    if asked.late and rules.keep(Guard.NOT_AFTER_SUBMIT):
        return session, Reply("LATE")
    other = session.quarantines != asked.number and rules.keep(Guard.REDRIVE_NAMES_NUMBER)
    if other or session.status in ("none", "deleted"):
        return session, Reply("STALE")
    choice = EVERYTHING if asked.everything else asked.skip
    if session.status != "quarantined":
        return session, Reply("OK" if session.redriven == choice else "STALE")
    given_up = next((one for one in session.inputs if one.n == asked.skip), None)
    if asked.skip and (given_up is None or given_up.kind == "answer"):
        return session, Reply("INPUT")
    if asked.everything:
        session = _give_turn_up(session, rules)
        for one in session.inputs:
            session = settle(session, one.submission, "dead_lettered")
    elif given_up is not None and given_up.waits:
        session = settle(session, given_up.submission, "dead_lettered")
    elif given_up is not None and rules.keep(Guard.GIVING_UP_ENDS_TURN):
        session = _give_turn_up(session, rules)
    elif given_up is not None:
        session = settle(session, given_up.submission, "dead_lettered")
    history = session.history._replace(grants=0)
    session = session._replace(
        status="idle",
        attempts=0,
        attempts_before=0,
        put_off=False,
        redriven=choice,
        history=history,
    )
    return place(session), Reply("OK")


def _give_turn_up(session: Session, rules: Rules) -> Session:
    """The open turn ends with all that it has taken."""
    if not session.turn:
        return session
    for one in session.inputs:
        if one.turn == session.turn:
            ending = "superseded" if one.kind == "answer" else "dead_lettered"
            session = settle(session, one.submission, ending)
    session = settle_control(session, "completed")
    over = EndedTurn(session.turn, "dead_lettered", sound=True)
    history = session.history._replace(ended=(*session.history.ended, over))
    return session._replace(turn=0, parked=False, control=None, waits=(), history=history)

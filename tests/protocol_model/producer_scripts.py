"""`submit`, `control` and `delete`, each a pure function of a session and a request."""

from __future__ import annotations

from tests.protocol_model.requests import Cancel, Delete, Guard, Reply, Rules, Submit
from tests.protocol_model.session import (
    ANONYMOUS,
    EndedTurn,
    Input,
    Session,
    accept,
    place,
    receipt_of,
    settle,
    settle_all,
    wait_of,
)

Answered = tuple[Session, Reply]

KIND_OF = {"steer": "steer", "join": "join", "debounce": "join"}
"""How a turn takes a message; `turn` where nothing is said."""


def submit(session: Session, asked: Submit, rules: Rules) -> Answered:
    if asked.late and rules.keep(Guard.NOT_AFTER_SUBMIT):
        return session, Reply("LATE")
    receipt = receipt_of(session, asked.submission)
    first = Guard.RECEIPT_OF_CONTROL if asked.cls == "ctl" else Guard.RECEIPT_FIRST
    if receipt is not None and rules.keep(first):
        if receipt.content != asked.content:
            return session, Reply("MISMATCH")
        return session, Reply("DUPLICATE", receipt.ending)
    if refusal := _refusal(session, asked, rules):
        return session, Reply(refusal)
    if session.gone:
        session = _begin(session, rules)
    if receipt is None:
        session = accept(session, asked.submission, asked.content)
    if asked.cls == "ctl":
        if session.control is not None:
            return settle(session, asked.submission, "completed"), Reply("MERGED")
        return place(session._replace(control=asked.submission)), Reply("ACCEPTED")
    if asked.cls == "answer":
        return place(_put_answer(session, asked)), Reply("ACCEPTED")
    return place(_put_message(session, asked, rules)), Reply("ACCEPTED")


def _refusal(session: Session, asked: Submit, rules: Rules) -> str:
    """The word of the first guard that does not hold, or nothing."""
    if session.gone and not asked.may_create:
        return "DELETED" if session.status == "deleted" else "UNKNOWN"
    if session.status == "closed":
        return "CLOSED"
    if asked.cls == "answer" and rules.keep(Guard.ANSWER_NEEDS_WAIT):
        wait = wait_of(session, asked.target)
        if wait is None:
            return "STALE"
        if wait.answer and rules.keep(Guard.FIRST_ANSWER_WINS):
            return "ANSWERED"
    if asked.cls == "ctl" and rules.keep(Guard.CONTROL_NEEDS_TURN):
        if not session.turn:
            return "NO_TURN"
        if asked.target not in (0, session.turn):
            return "STALE_TURN"
    limited = asked.cls == "turn" or not rules.keep(Guard.ANSWERS_EXEMPT)
    depth = sum(one.kind != "answer" for one in session.inputs)
    if limited and (depth >= rules.depth or (asked.policy == "reject" and _is_at_work(session))):
        return "BUSY"
    return ""


def _is_at_work(session: Session) -> bool:
    """Whether it has a turn, or a message that is due or gathers others: none that waits for a time
    of its own."""
    messages = (one for one in session.inputs if one.kind != "answer")
    return bool(session.turn) or any(one.due or one.kind == "join" for one in messages)


def _begin(session: Session, rules: Rules) -> Session:
    """A new life goes on from the counters of the one before."""
    began = session._replace(status="idle", life=session.life + 1)
    if session.status == "deleted" and not rules.keep(Guard.TOMBSTONE_COUNTS):
        return began._replace(fence=0, revision=0, used_nonce=0)
    return began


def _put_answer(session: Session, asked: Submit) -> Session:
    n = session.position + 1
    answer = Input(n, asked.submission, "answer", turn=session.turn, key=str(asked.target))
    waits = tuple(
        wait._replace(answer=n) if wait.name == asked.target else wait for wait in session.waits
    )
    return session._replace(position=n, inputs=(*session.inputs, answer), waits=waits)


def _put_message(session: Session, asked: Submit, rules: Rules) -> Session:
    n = session.position + 1
    if asked.policy == "latest":
        for older in session.inputs:
            spared = not older.waits and rules.keep(Guard.LATEST_SPARES_HELD)
            if not spared and older.kind != "answer" and older.key == asked.key:
                session = settle(session, older.submission, "superseded")
    if asked.policy in ("interrupt", "rollback") and session.turn and session.control is None:
        session = session._replace(control=ANONYMOUS)
    inputs = session.inputs
    if asked.policy == "debounce":
        inputs = tuple(
            one._replace(due=asked.due) if _is_gathered(one, asked) else one for one in inputs
        )
    kind = KIND_OF.get(asked.policy, "turn")
    message = Input(n, asked.submission, kind, asked.due, key=asked.key)
    return session._replace(position=n, inputs=(*inputs, message))


def _is_gathered(one: Input, asked: Submit) -> bool:
    """Whether a debounced message waits for more together with the one that is asked for."""
    return one.waits and one.kind == "join" and one.key == asked.key and not one.group


def cancel(session: Session, asked: Cancel, rules: Rules) -> Answered:
    if asked.late and rules.keep(Guard.NOT_AFTER_SUBMIT):
        return session, Reply("LATE")
    if receipt_of(session, asked.submission) is not None:
        return session, Reply("CANCELLED")
    receipt = receipt_of(session, asked.target)
    if receipt is None:
        return session, Reply("UNKNOWN")
    if receipt.ending:
        return session, Reply("ENDED", receipt.ending)
    target = next((one for one in session.inputs if one.submission == asked.target), None)
    if target is None or (not target.waits and rules.keep(Guard.CANCEL_SPARES_HELD)):
        return session, Reply("RUNNING")
    session = accept(session, asked.submission, content=-1)
    session = settle(settle(session, asked.target, "cancelled"), asked.submission, "completed")
    return place(session), Reply("CANCELLED")


def delete(session: Session, asked: Delete, rules: Rules) -> Answered:
    if asked.late and rules.keep(Guard.NOT_AFTER_SUBMIT):
        return session, Reply("LATE")
    other = session.life != asked.life and rules.keep(Guard.DELETE_NAMES_LIFE)
    if session.status == "none" or other:
        return session, Reply("STALE")
    if session.status == "deleted":
        return session, Reply("OK")
    if rules.keep(Guard.DELETE_SETTLES):
        session = settle_all(session, "cancelled")
    history = session.history._replace(deltas=0, grants=0)
    if session.turn:
        gone = EndedTurn(session.turn, "deleted", sound=True)
        history = history._replace(ended=(*history.ended, gone))
    kept = Session(
        status="deleted",
        fence=session.fence + 1,
        used_nonce=session.used_nonce,
        revision=session.revision,
        position=session.position,
        turns=session.turns,
        life=session.life,
        quarantines=session.quarantines,
        receipts=session.receipts,
        history=history,
    )
    return kept, Reply("OK")

"""What workers ask of a session besides commits, and what anybody may do for upkeep."""

from __future__ import annotations

from tests.protocol_model.operator_scripts import quarantined
from tests.protocol_model.producer_scripts import Answered
from tests.protocol_model.requests import Append, Claim, GiveUp, Guard, Reply, Rules, view
from tests.protocol_model.session import OVER, Lease, Session, place, ready


def refused_write(session: Session, lease: Lease, rules: Rules) -> str:
    """Why the caller may not write, or nothing."""
    if session.status == "deleted":
        return "DELETED"
    if session.lease is None:
        return "GONE"
    same = session.lease == lease
    if not rules.keep(Guard.WHOLE_LEASE):
        same = session.lease.fence == lease.fence
    if not same:
        return "LOST"
    if session.expired and rules.keep(Guard.EXPIRED_REFUSED):
        return "EXPIRED"
    return ""


def claim(session: Session, asked: Claim, rules: Rules) -> Answered:
    if session.status in OVER:
        return session, Reply("NONE")
    held = session.lease is not None and not session.expired
    if session.lease is not None and held:
        holder = (session.lease.worker, session.lease.boot, session.used_nonce)
        mine = holder == (asked.worker, asked.boot, asked.nonce)
        if mine and rules.keep(Guard.CLAIM_REPLAY):
            return session, Reply("GRANTED", fence=session.lease.fence, view=view(session))
        if rules.keep(Guard.LIVE_LEASE):
            return session, Reply("BUSY")
    if session.used_nonce == asked.nonce and rules.keep(Guard.USED_NONCE):
        return session, Reply("USED")
    if asked.late and rules.keep(Guard.NOT_AFTER_CLAIM):
        return session, Reply("LATE")
    if not held and not ready(session):
        return place(session), Reply("NONE")
    if session.attempts >= rules.max_attempts:
        return quarantined(session), Reply("QUARANTINED")
    if session.attempts >= rules.suspect_after and not asked.solo:
        return place(session), Reply("SUSPECT")
    fence = session.fence + 1
    history = session.history._replace(deltas=0, grants=session.history.grants + 1)
    granted = session._replace(
        fence=fence,
        lease=Lease(asked.worker, asked.boot, asked.nonce, fence),
        expired=False,
        used_nonce=asked.nonce,
        batch=0,
        parked=False,
        put_off=False,
        attempts_before=session.attempts,
        attempts=session.attempts + 1,
        history=history,
    )
    return place(granted), Reply("GRANTED", fence=fence, view=view(granted))


def append(session: Session, asked: Append, rules: Rules) -> Answered:
    if refusal := refused_write(session, asked.lease, rules):
        return session, Reply(refusal)
    if rules.keep(Guard.BATCH_NUMBER):
        if asked.batch <= session.batch:
            return session, Reply("ALREADY")
        if asked.batch != session.batch + 1:
            return session, Reply("GAP")
    history = session.history._replace(deltas=session.history.deltas + 1)
    return session._replace(batch=asked.batch, history=history), Reply("OK")


def give_up(session: Session, asked: GiveUp, rules: Rules) -> Answered:
    if session.status == "deleted":
        return session, Reply("DELETED")
    other = session.lease != asked.lease and rules.keep(Guard.GIVE_UP_NAMES_LEASE)
    if session.lease is None or other:
        if session.released == asked.lease:
            return session, Reply("OK")
        return session, Reply("GONE" if session.lease is None else "LOST")
    history = session.history._replace(grants=max(0, session.history.grants - 1))
    released = session._replace(
        lease=None, expired=False, released=asked.lease, history=history
    )  # fmt: skip
    if rules.keep(Guard.GIVE_UP_RESTORES):
        released = released._replace(attempts=session.attempts_before)
    if asked.reason == "unable":
        released = released._replace(put_off=True)
    return place(released), Reply("OK")


def reap(session: Session, rules: Rules) -> Answered:
    """Any worker, whatever it serves: an expired lease or a due time is placed by the one rule."""
    if session.status in OVER:
        return session, Reply("NONE")
    if session.lease is not None and not session.expired and rules.keep(Guard.REAP_SPARES_LIVE):
        return session, Reply("BUSY")
    if session.lease is not None:
        session = session._replace(lease=None, expired=False)
        if not rules.keep(Guard.REAP_COUNTS):
            session = session._replace(attempts=session.attempts_before)
    return place(session), Reply("PLACED")


def defer(session: Session, rules: Rules) -> Answered:
    """Keep a ready session from being offered for a while."""
    if session.status in OVER or not ready(session):
        return session, Reply("NONE")
    put_off = place(session._replace(put_off=True))
    if not rules.keep(Guard.DEFER_KEEPS_TIMER):
        put_off = put_off._replace(timed=False)
    return put_off, Reply("OK")


def purge(session: Session, rules: Rules) -> Answered:
    """Forget a tombstone; the partition's floor keeps its counters for the next life."""
    if session.status != "deleted":
        return session, Reply("NONE" if session.status == "none" else "KEPT")
    floor = Session(
        fence=session.fence,
        revision=session.revision,
        position=session.position,
        turns=session.turns,
        life=session.life,
        history=session.history,
    )
    if not rules.keep(Guard.FLOOR_COUNTS):
        floor = Session(history=session.history)
    return floor, Reply("PURGED")

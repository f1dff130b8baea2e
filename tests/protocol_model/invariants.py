"""What must hold in every state, and across every step. The numbers are those of messages.

I1 every accepted submission is in one place and ends once. I2 fences rise by one, nothing is
written under another lease. I3 no delta twice. I4 work is ready, held or timed, in one index.
I5 ready implies work. I6 no tool twice. I7 an interrupted turn does not complete. I9 no answer
without a turn. I10 a turn ends once. I11 what was acknowledged is known. I12 grants without
progress are bounded. I13 refused stays refused. I14 the live holder is never refused. I15 nobody
is told that it holds what it does not hold. I16 a live worker knows its leases. I18 a deletion ends
its own life. I19 the first answer wins. I20 a redrive ends its own quarantine.
"""

from __future__ import annotations

from tests.protocol_model.requests import (
    Append,
    Claim,
    Commit,
    Delete,
    GiveUp,
    Guard,
    Redrive,
    Reply,
    Request,
    Rules,
    Submit,
)
from tests.protocol_model.session import (
    OVER,
    Lease,
    Session,
    has_time,
    has_work,
    receipt_of,
    wait_of,
)
from tests.protocol_model.world import Broken, Scenario, World

REFUSED = frozenset(
    ["BUSY", "NO_TURN", "STALE_TURN", "STALE", "ANSWERED", "RUNNING", "ENDED", "UNKNOWN", "DELETED"]
)
ACKNOWLEDGED = frozenset(["ACCEPTED", "DUPLICATE", "MERGED", "CANCELLED"])


def check_session(session: Session, scenario: Scenario | None = None) -> None:
    """The record of one session is sound; in a scenario, so is what its workers did."""
    _check_submissions(session)
    _check_indexes(session)
    _check_turns(session)
    if scenario is None:
        return
    if session.history.deltas > 1:
        raise Broken("I3 a delta was appended twice")
    if not all(ended.sound for ended in session.history.ended):
        raise Broken("I7 a turn completed although it was interrupted, or without its own step")
    if session.history.grants > scenario.rules.max_attempts:
        raise Broken("I12 more grants without progress than the budget")
    if session.status == "quarantined" and scenario.no_crashes:
        raise Broken("I12 quarantined without a crash")


def _check_submissions(session: Session) -> None:
    for receipt in session.receipts:
        submission = receipt.submission
        places = sum(one.submission == submission for one in session.inputs)
        places += session.control == submission
        ends = session.history.settled.count(submission)
        if ends > 1:
            raise Broken(f"I1 submission {submission} settled twice")
        if not receipt.ending and (places != 1 or ends):
            raise Broken(f"I1 {submission} is open, in {places} places, settled {ends} times")
        if receipt.ending and places:
            raise Broken(f"I1 {submission} has ended and is still pending")
    known = {receipt.submission for receipt in session.receipts}
    if not {one.submission for one in session.inputs} <= known:
        raise Broken("I1 an input without a receipt")


def _check_indexes(session: Session) -> None:
    over = session.status in OVER
    free = session.lease is None
    called = not over and has_work(session) and (not session.put_off or session.control is not None)
    if called and free and session.status != "ready" and not session.timed:
        raise Broken(f"I4 lost wake-up: eligible work, status {session.status}")
    if session.status == "ready" and not called:
        raise Broken("I5 ready without work")
    if session.timed and (over or session.status == "ready" or not free):
        raise Broken("I4 in two indexes")
    if (session.status == "held") != (not free):
        raise Broken("I4 held and lease disagree")
    timed = not over and (session.put_off or has_time(session))
    if timed and free and session.status != "ready" and not session.timed:
        raise Broken("I4 a time that is ahead, and no index holds it")


def _check_turns(session: Session) -> None:
    held = [one for one in session.inputs if one.turn]
    if session.control is not None and not session.turn:
        raise Broken("I7 an interrupt is recorded but no turn is active")
    if session.turn and not any(one.kind != "answer" for one in held):
        raise Broken("I1 a turn that holds no input: it was settled behind its back")
    if not session.turn and any(one.kind == "answer" for one in session.inputs):
        raise Broken("I9 an answer is left without a turn")
    if any(one.turn != session.turn for one in held):
        raise Broken("I1 an input is held by a turn that is over")
    for one in held:
        if one.kind == "answer" and not any(wait.answer == one.n for wait in session.waits):
            raise Broken("I9 an answer that no wait has")
    turns = [ended.turn for ended in session.history.ended]
    if len(turns) != len(set(turns)):
        raise Broken("I10 a turn ended twice")


def check_step(before: Session, after: Session, asked: Request, reply: Reply, rules: Rules) -> None:
    """One script ran: it changed nothing that its caller had no right to."""
    if isinstance(asked, Append | Commit | GiveUp) and after != before:
        late = before.expired and not isinstance(asked, GiveUp)
        late = late and rules.keep(Guard.EXPIRED_REFUSED)
        if before.lease != asked.lease or late:
            raise Broken(f"I2 a superseded write changed the session: {type(asked).__name__}")
    if after.fence < before.fence:
        raise Broken("I2 the fence went back")
    if isinstance(asked, Claim) and reply.word == "GRANTED" and after.lease != before.lease:
        if before.lease is not None and not before.expired:
            raise Broken("I2 a live lease was taken over")
        if after.fence != before.fence + 1:
            raise Broken("I2 the fence did not rise by one")
    if isinstance(asked, Delete) and after != before and before.life != asked.life:
        raise Broken("I18 a deletion ended a later life of the session")
    if isinstance(asked, Redrive) and after != before and before.quarantines != asked.number:
        raise Broken("I20 a redrive ended another quarantine")
    if isinstance(asked, Submit) and asked.cls == "answer" and reply.word == "ACCEPTED":
        wait = wait_of(before, asked.target)
        if wait is not None and wait.answer:
            raise Broken("I19 a second answer replaced the first")


def check_holder(before: Session, asked: Request, reply: Reply) -> None:
    """The request is the first of its holder, or its repeat: a live lease is honoured."""
    if before.lease is None or before.expired:
        return
    if isinstance(asked, Append | Commit):
        refused = reply.word in ("LOST", "GONE", "EXPIRED", "CONFLICT")
        if before.lease == asked.lease and refused:
            raise Broken(f"I14 the live holder was refused: {reply.word}")
    elif isinstance(asked, Claim):
        mine = before.lease[:3] == (asked.worker, asked.boot, asked.nonce)
        if mine and reply.word in ("BUSY", "USED"):
            raise Broken("I14 the retry of a granted claim was refused")


def check_world(world: World, scenario: Scenario) -> None:
    for session in world.sessions:
        check_session(session, scenario)
        if world.replica is None and session.lease and not session.expired:
            alive = world.workers[session.lease.worker].boot == session.lease.boot
            if alive and unknown_to_holder(world, session.lease):
                raise Broken("I16 a live worker holds a lease that it does not know of")
    for _, turn, times in world.tool_runs:
        if times > 1 and not scenario.forgets:
            raise Broken(f"I6 the tool of turn {turn} ran {times} times")
    for index, word in enumerate(world.words):
        if word:
            _check_word(world.sessions[scenario.acts[index].session], index, word, scenario)


def _check_word(session: Session, index: int, word: str, scenario: Scenario) -> None:
    known = receipt_of(session, index) is not None or index in session.history.settled
    if scenario.acts[index].kind == "delete":
        return
    if word in ACKNOWLEDGED and not known and not scenario.forgets:
        raise Broken(f"I11 submission {index} was acknowledged and is unknown to the store")
    if word in REFUSED and known:
        raise Broken(f"I13 submission {index} was refused ({word}) and later accepted")


def unknown_to_holder(world: World, lease: Lease) -> bool:
    """The worker that the lease names does not know that it holds it."""
    worker = world.workers[lease.worker]
    if worker.boot != lease.boot:
        return True
    if worker.holding is not None and worker.holding.lease == lease:
        return False
    asking = worker.asking
    return not (isinstance(asking, Claim) and asking.nonce == lease.nonce)

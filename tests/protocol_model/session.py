"""What Redis holds of one session, and the one rule that places it."""

from __future__ import annotations

from typing import Final, NamedTuple

ANONYMOUS: Final = -1
"""A control that came with a message: nothing of its own has to be settled."""

EVERYTHING: Final = -1
"""All that was open was given up."""

NEVER, AHEAD, PASSED = 0, 1, 2
"""Where a wait's deadline is."""

OVER: Final = ("none", "quarantined", "closed", "deleted")
"""Statuses that no index shows."""


class Lease(NamedTuple):
    """The lease string: compared as a whole."""

    worker: int
    boot: int
    nonce: int
    fence: int


class Input(NamedTuple):
    """One open position of the inbox."""

    n: int
    submission: int
    kind: str
    """`turn`, `steer`, `join` or `answer`."""
    due: bool = True
    turn: int = 0
    """The turn that holds it, 0 while it waits."""
    group: int = 0
    """The turn whose inputs were queued again together, 0 for none."""
    key: str = ""

    @property
    def waits(self) -> bool:
        return self.kind != "answer" and not self.turn


class Wait(NamedTuple):
    """Something that the open turn waits for."""

    name: int
    kind: str = "approval"
    deadline: int = NEVER
    answer: int = 0
    """The position of the answer, 0 while there is none."""

    @property
    def calls(self) -> bool:
        """The turn can go on because of it."""
        return self.answer > 0 or self.deadline == PASSED


class Receipt(NamedTuple):
    submission: int
    content: int
    ending: str = ""


class EndedTurn(NamedTuple):
    turn: int
    ending: str
    sound: bool
    """It may end like that: completed only after a step of its own, and not interrupted."""


class History(NamedTuple):
    """What an observer remembers. No script reads it; the invariants do."""

    settled: tuple[int, ...] = ()
    """A submission for each settlement, sorted."""
    deltas: int = 0
    """Copies of the one delta that was streamed under this lease."""
    ended: tuple[EndedTurn, ...] = ()
    stepped: int = 0
    """The newest turn that has committed a step."""
    grants: int = 0
    """Grants since real progress, less those that were given up cleanly."""


class Session(NamedTuple):
    status: str = "none"
    timed: bool = False
    """It stands in `timers`."""
    fence: int = 0
    lease: Lease | None = None
    expired: bool = False
    used_nonce: int = 0
    released: Lease | None = None
    """The lease that was given up last."""
    revision: int = 0
    commit_id: tuple[int, int, int] | None = None
    batch: int = 0
    inputs: tuple[Input, ...] = ()
    position: int = 0
    """The highest position given out."""
    turn: int = 0
    turns: int = 0
    parked: bool = False
    waits: tuple[Wait, ...] = ()
    control: int | None = None
    """The submission that interrupted the turn, or `ANONYMOUS`."""
    attempts: int = 0
    attempts_before: int = 0
    """What a clean give-up goes back to."""
    put_off: bool = False
    """Not to be offered before a time that is still ahead."""
    life: int = 0
    quarantines: int = 0
    """The number of the newest quarantine."""
    redriven: int | None = None
    """What was given up when that ended: a position, 0 for nothing, `EVERYTHING`."""
    checkpoint: str = ""
    receipts: tuple[Receipt, ...] = ()
    history: History = History()

    @property
    def gone(self) -> bool:
        return self.status in ("none", "deleted")


def receipt_of(session: Session, submission: int) -> Receipt | None:
    for receipt in session.receipts:
        if receipt.submission == submission:
            return receipt
    return None


def wait_of(session: Session, name: int) -> Wait | None:
    for wait in session.waits:
        if wait.name == name:
            return wait
    return None


def accept(session: Session, submission: int, content: int) -> Session:
    """Write the receipt: from here on the submission will end exactly once."""
    receipts = (*session.receipts, Receipt(submission, content))
    return session._replace(receipts=tuple(sorted(receipts)))


def settle(session: Session, submission: int, ending: str) -> Session:
    """End one submission. The observer counts every time that this is done."""
    receipts = tuple(
        receipt._replace(ending=receipt.ending or ending)
        if receipt.submission == submission
        else receipt
        for receipt in session.receipts
    )
    settled = tuple(sorted((*session.history.settled, submission)))
    return session._replace(
        inputs=tuple(one for one in session.inputs if one.submission != submission),
        receipts=receipts,
        history=session.history._replace(settled=settled),
    )


def settle_all(session: Session, ending: str) -> Session:
    """Everything that is open: inputs, and the control of the turn."""
    for one in session.inputs:
        session = settle(session, one.submission, ending)
    return settle_control(session, ending)


def settle_control(session: Session, ending: str) -> Session:
    if session.control is None or session.control == ANONYMOUS:
        return session
    return settle(session, session.control, ending)


def waiting(session: Session) -> tuple[Input, ...]:
    """What a turn may take now."""
    return tuple(one for one in session.inputs if one.waits and one.due)


def has_work(session: Session) -> bool:
    """Somebody could go on with it now."""
    if not session.turn:
        return any(one.waits and one.due for one in session.inputs)
    if not session.parked or session.control is not None:
        return True
    return any(wait.calls for wait in session.waits)


def has_time(session: Session) -> bool:
    """A time that is ahead will give it work."""
    if not session.turn:
        return any(one.waits and not one.due for one in session.inputs)
    return any(wait.deadline == AHEAD for wait in session.waits)


def ready(session: Session) -> bool:
    """`place` would put an unowned session into `ready`."""
    if session.status in OVER or session.lease is not None:
        return False
    return has_work(session) and (not session.put_off or session.control is not None)


def place(session: Session) -> Session:
    """Derive the session's only index and its status from what is open."""
    if session.status in OVER:
        return session._replace(timed=False)
    if session.lease is not None:
        return session._replace(status="held", timed=False)
    if ready(session):
        return session._replace(status="ready", timed=False)
    status = "parked" if session.turn else "idle"
    return session._replace(status=status, timed=session.put_off or has_time(session))

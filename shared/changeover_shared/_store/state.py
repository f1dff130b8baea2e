"""What becomes of a session: its status before, what happens, its status after.

A session is a conversation that must never wait for nobody. Its status says who has to act next:
nobody (`idle`), any worker (`ready`), one worker (`held`), the world outside (`parked`), an
operator (`quarantined`), or nobody ever again (`closed`, `deleted`). Four rules make the table:

1. The status is derived, never chosen. Every script ends by asking what is open: an owner makes
   it held; else an open turn or an input that is due makes it ready; else a time or an answer that
   is still to come leaves it idle (no turn) or parked (a turn). So no order of two scripts can
   lose a wake-up: whichever comes second sees what the first one left.
2. A turn outlives its lease. Inputs, waits and controls belong to the turn, the turn to the
   session; a worker that dies leaves all of them, and the next grant finds the same composition.
   Takeover is therefore not a transition of its own but two: the lease runs out and the session
   is placed, then somebody claims it.
3. Only an owner moves a held session on, and only by naming its lease. Everybody else adds to
   what is open (a message, an answer, a control) and the owner learns of it from its next reply.
4. Quarantine and the ends absorb. Nothing that producers or workers do leaves them; quarantine
   still accepts, because accepted work is kept for the operator, who alone ends it.

A cell names every status that may follow, and in capitals every word that a script refuses with;
a refusal leaves the status as it was. Where a cell has several, what is open decides which.

The scripts are the authority. This table is for people, and a test drives the scripts through
every cell of it, so it says neither more nor less than they do.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from changeover_shared._words import Status


class Trigger(Enum):
    """What can happen to a session."""

    SUBMIT = "a message arrives"
    SUBMIT_LATER = "a scheduled message arrives"
    SUBMIT_NEVER_CREATE = "a message arrives that may not create the session"
    SUBMIT_INTERRUPTING = "a message arrives that interrupts"
    ANSWER = "an answer arrives"
    SECOND_ANSWER = "a second answer arrives"
    INTERRUPT = "an interrupt arrives"
    INTERRUPT_OTHER = "an interrupt of another turn arrives"
    CANCEL = "a waiting message is cancelled"
    DUE = "a due time passes"
    CLAIM = "a worker claims it"
    CLAIM_SUSPECT = "a busy worker claims it after three lost grants"
    CLAIM_EXHAUSTED = "a worker claims it after five lost grants"
    EXPIRE = "its lease runs out"
    EVICT = "its worker is evicted"
    RENEW = "its lease is renewed"
    APPEND = "its turn streams"
    STEP = "a step is committed"
    START = "a turn is started"
    PARK = "its turn parks"
    END = "its turn ends and it is released"
    END_GO_ON = "its turn ends and more is wanted"
    END_CLOSE = "its turn ends and closes it"
    REQUEUE = "its turn's inputs are queued again"
    QUARANTINE = "its worker quarantines it"
    HAND_OFF = "its worker hands it off"
    RELEASE = "its worker lets it go"
    UNABLE = "its worker cannot run it"
    REROUTE = "it is moved to another queue"
    DEFER = "it is put off because of a limit"
    STOP = "an operator quarantines it"
    REDRIVE = "an operator lets it try again"
    REDRIVE_WITHOUT = "an operator lets it try again without an input"
    DEAD_LETTER = "an operator gives up what is open"
    DELETE = "it is deleted"


COLUMNS: Final[tuple[Status | None, ...]] = (
    None,
    Status.IDLE,
    Status.READY,
    Status.HELD,
    Status.PARKED,
    Status.QUARANTINED,
    Status.CLOSED,
    Status.DELETED,
)
"""The statuses before, in the order of `_ROWS`; None is a session that was never heard of."""

_ROWS: Final[Mapping[Trigger, str]] = {
    Trigger.SUBMIT: "ready  ready  ready  held  parked  quarantined  CLOSED  ready",
    Trigger.SUBMIT_LATER: "idle  idle  ready  held  parked  quarantined  CLOSED  idle",
    Trigger.SUBMIT_NEVER_CREATE: (
        "UNKNOWN  ready  ready  held  parked  quarantined  CLOSED  DELETED"
    ),
    Trigger.SUBMIT_INTERRUPTING: "ready  ready  ready  held  ready  quarantined  CLOSED  ready",
    Trigger.ANSWER: (
        "UNKNOWN  STALE  ready/STALE  held/ANSWERED/STALE  ready  quarantined/STALE  "
        "CLOSED  DELETED"
    ),
    Trigger.SECOND_ANSWER: (
        "UNKNOWN  STALE  ANSWERED/STALE  ANSWERED/STALE  ANSWERED  ANSWERED/STALE  CLOSED  DELETED"
    ),
    Trigger.INTERRUPT: (
        "UNKNOWN  NO_TURN  ready/NO_TURN  held/NO_TURN  ready  quarantined/NO_TURN  CLOSED  DELETED"
    ),
    Trigger.INTERRUPT_OTHER: (
        "UNKNOWN  NO_TURN  NO_TURN/STALE_TURN  NO_TURN/STALE_TURN  "
        "STALE_TURN  NO_TURN/STALE_TURN  CLOSED  DELETED"
    ),
    Trigger.CANCEL: (
        "UNKNOWN  idle/UNKNOWN  idle/ready  held/ENDED/UNKNOWN  "
        "parked/UNKNOWN  quarantined  ENDED  UNKNOWN"
    ),
    Trigger.DUE: "NONE  idle/ready  ready  BUSY  parked/ready  NONE  NONE  NONE",
    Trigger.CLAIM: "NONE  NONE  held  BUSY  NONE  NONE  NONE  NONE",
    Trigger.CLAIM_SUSPECT: "NONE  NONE  ready  BUSY  NONE  NONE  NONE  NONE",
    Trigger.CLAIM_EXHAUSTED: "NONE  NONE  quarantined  BUSY  NONE  NONE  NONE  NONE",
    Trigger.EXPIRE: "NONE  idle  ready  idle/ready  parked  NONE  NONE  NONE",
    Trigger.EVICT: "NONE  idle  ready  idle/ready  parked  NONE  NONE  NONE",
    Trigger.RENEW: "GONE  GONE  GONE  held  GONE  GONE  GONE  GONE",
    Trigger.APPEND: "GONE  GONE  GONE  held  GONE  GONE  GONE  DELETED",
    Trigger.STEP: "GONE  GONE  GONE  held  GONE  GONE  GONE  DELETED",
    Trigger.START: "GONE  GONE  GONE  held/CONFLICT/INPUT  GONE  GONE  GONE  DELETED",
    Trigger.PARK: "GONE  GONE  GONE  held/parked/BAD_PARK  GONE  GONE  GONE  DELETED",
    Trigger.END: "GONE  GONE  GONE  idle/ready/CONFLICT/CONTROL  GONE  GONE  GONE  DELETED",
    Trigger.END_GO_ON: "GONE  GONE  GONE  held/idle/CONFLICT/CONTROL  GONE  GONE  GONE  DELETED",
    Trigger.END_CLOSE: "GONE  GONE  GONE  closed/CONFLICT/CONTROL  GONE  GONE  GONE  DELETED",
    Trigger.REQUEUE: "GONE  GONE  GONE  ready/CONFLICT/CONTROL  GONE  GONE  GONE  DELETED",
    Trigger.QUARANTINE: "GONE  GONE  GONE  quarantined  GONE  GONE  GONE  DELETED",
    Trigger.HAND_OFF: (
        "GONE  idle  ready/GONE  idle/ready  parked  quarantined/GONE  closed  DELETED"
    ),
    Trigger.RELEASE: (
        "GONE  idle  ready/GONE  idle/ready  parked  quarantined/GONE  closed  DELETED"
    ),
    Trigger.UNABLE: (
        "GONE  idle  ready/GONE  idle/parked/ready  parked  quarantined/GONE  closed  DELETED"
    ),
    Trigger.REROUTE: "STALE  idle  ready  HELD  parked  quarantined  STALE  STALE",
    Trigger.DEFER: "NONE  NONE  idle/parked  NONE  NONE  NONE  NONE  NONE",
    Trigger.STOP: (
        "STALE  quarantined  quarantined  quarantined  quarantined  quarantined  STALE  STALE"
    ),
    Trigger.REDRIVE: "STALE  STALE  STALE  STALE  STALE  idle/parked/ready  STALE  STALE",
    Trigger.REDRIVE_WITHOUT: "STALE  STALE  STALE  STALE  STALE  idle/ready  STALE  STALE",
    Trigger.DEAD_LETTER: "STALE  STALE  STALE  STALE  STALE  idle  STALE  STALE",
    Trigger.DELETE: "STALE  deleted  deleted  deleted  deleted  deleted  deleted  deleted",
}

TRANSITIONS: Final[Mapping[tuple[Status | None, Trigger], frozenset[str]]] = {
    (before, trigger): frozenset(cell.split("/"))
    for trigger, row in _ROWS.items()
    for before, cell in zip(COLUMNS, row.split(), strict=True)
}
"""Status before and what happens -> the statuses that may follow and, in capitals, the words of
refusals, which change nothing."""


def after(before: Status | None, trigger: Trigger) -> frozenset[Status]:
    """The statuses that a session may have after something that changed it."""
    return frozenset(Status(one) for one in TRANSITIONS[before, trigger] if one.islower())

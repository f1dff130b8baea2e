"""The words of the protocol: every enum and literal that stands on the wire.

`docs/protocol.md` says what each word means; nothing else in the code spells one.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Literal

FORMAT: Final = 1
"""The checkpoint format this build writes. It is part of a session's route, so that a worker
that cannot read a format never sees its sessions."""

LAYOUT: Final = 1
"""The key layout this build's scripts maintain; recorded in every partition's `meta`."""

SUSPECT_AFTER: Final = 3
"""From so many grants without progress on, a session is a suspect: only a process that holds
nothing else may claim it. `place.lua` has the same number."""


class Status(StrEnum):
    """Where a session is; stored in its head, derived by `place()` alone."""

    IDLE = "idle"
    """Nothing to do, or only work that is not due yet."""
    READY = "ready"
    """Has work and waits for a worker."""
    HELD = "held"
    """One incarnation speaks for it, under one fence. People read `running`."""
    PARKED = "parked"
    """A turn waits durably for an answer or a time; no worker, no memory."""
    QUARANTINED = "quarantined"
    """Stopped after repeated takeovers without progress, until an operator acts."""
    CLOSED = "closed"
    """Takes nothing more; its journal can still be read."""
    DELETED = "deleted"
    """A tombstone: counters only."""


SessionStatus = Literal["idle", "ready", "running", "parked", "quarantined", "closed", "deleted"]
"""A `Status` as people read it: `held` is `running`."""


class Ending(StrEnum):
    """How a submission ended. Each accepted submission ends exactly once."""

    COMPLETED = "completed"
    FAILED = "failed"
    ABORTED = "aborted"
    SUPERSEDED = "superseded"
    CANCELLED = "cancelled"
    DEAD_LETTERED = "dead_lettered"


class Effect(StrEnum):
    """What a tool may do when it is run a second time."""

    PURE = "pure"
    """Reads only: may be run again at will."""
    IDEMPOTENT = "idempotent"
    """Running it again with the same idempotency key changes nothing more."""
    ONCE = "once"
    """Must not be run again when it may have run; the model is told that the outcome is unknown."""


class StepEnding(StrEnum):
    """How a model step ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    """The worker died or the turn was interrupted; the step's deltas never count."""
    RETRYING = "retrying"
    """The provider failed and the step is asked again under a new step id, same index."""


class WorkerChange(StrEnum):
    """Why a session is with another worker than before."""

    HANDED_OFF = "handed_off"
    TAKEN_OVER = "taken_over"
    EVICTED = "evicted"


class SubmissionClass(StrEnum):
    """How the submit script treats an operation."""

    TURN = "turn"
    """Taken in order, one turn each."""
    ANSWER = "answer"
    """Answers an open wait of a turn; exempt from the inbox limits."""
    CTL = "ctl"
    """Controls the running turn; at most one per turn, outside the inbox."""


class CommitKind(StrEnum):
    """What a commit records; `step`, `result`, `answer` and a turn's end count as progress."""

    START = "start"
    TAKE = "take"
    STEP = "step"
    RESULT = "result"
    ANSWER = "answer"
    RETRY = "retry"
    """The model failed and is asked again; or it is asked again now."""
    RECOVER = "recover"
    END = "end"


class Next(StrEnum):
    """What a commit asks for after its writes."""

    HOLD = "hold"
    """Keep the lease."""
    AUTO = "auto"
    """Keep the lease if there is work and turns of the quantum are left; else release."""
    RELEASE = "release"
    PARK = "park"
    """Release and wait; the script keeps the lease if something is eligible already."""
    CLOSE = "close"
    QUARANTINE = "quarantine"
    """Release, and let nobody go on until an operator acts; the turn stays open."""


class GiveUp(StrEnum):
    """Why a holder gives a session up outside a commit."""

    HAND_OFF = "hand_off"
    """Drain: another worker goes on at once, keeping the session's place once."""
    RELEASE = "release"
    """Nothing to do after all."""
    UNABLE = "unable"
    """This worker cannot run it (no such agent); it is offered again after a back-off."""

"""What may be asked of a session, what is answered, and the rules that a run goes by."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeAlias

from tests.protocol_model.session import Input, Lease, Session, Wait, waiting


class Guard(Enum):
    """One rule that the search proves necessary by leaving it out."""

    RECEIPT_FIRST = "a submission's receipt is looked up before anything else"
    RECEIPT_OF_CONTROL = "so is an interrupt's"
    NOT_AFTER_SUBMIT = "a submission that nobody waits for any more is refused"
    CONTROL_NEEDS_TURN = "an interrupt needs a turn"
    ANSWER_NEEDS_WAIT = "an answer needs a wait"
    FIRST_ANSWER_WINS = "an answered wait takes no second answer"
    ANSWERS_EXEMPT = "answers are exempt from the inbox's depth"
    LATEST_SPARES_HELD = "`latest` replaces waiting messages only"
    CANCEL_SPARES_HELD = "a cancel takes back waiting messages only"
    DELETE_SETTLES = "a deletion settles what is open"
    DELETE_NAMES_LIFE = "a deletion names the life that it ends"
    TOMBSTONE_COUNTS = "a tombstone keeps the counters"
    FLOOR_COUNTS = "a purge keeps them as the partition's floor"
    NOT_AFTER_CLAIM = "a claim that nobody waits for any more grants nothing"
    CLAIM_REPLAY = "a claim finds its own grant by its nonce"
    USED_NONCE = "a nonce is granted once"
    LIVE_LEASE = "a live lease is never taken over"
    REAP_SPARES_LIVE = "nor reaped"
    REAP_COUNTS = "a reaped grant stays counted"
    WHOLE_LEASE = "the lease string is compared as a whole"
    EXPIRED_REFUSED = "an expired lease is refused even if nobody has taken it"
    BATCH_NUMBER = "an append's batch is written once"
    COMMIT_REPLAY = "a commit's id is looked up before the lease"
    REPLAY_SAYS_GONE = "its repeat says whether the lease is held now"
    REVISION = "a commit names the revision and the turn that it follows"
    REWOUND = "a store that is behind its holder says so"
    CONTROL_BARS_COMPLETION = "an interrupted turn does not complete"
    TAKE = "what a commit takes is there and waits"
    GROUP = "what was queued again together is taken together"
    CLOSE_UNANSWERED = "a wait that is answered cannot be closed"
    END_SETTLES_ANSWERS = "a turn's end settles its answers"
    END_SETTLES_CONTROL = "and its interrupt"
    PARK_LOOKS = "a turn parks only if nothing calls it"
    PARK_KEEPS_TIMER = "a parked turn's deadline is in the index"
    PARK_NEEDS_DEADLINE = "a job is waited for with a deadline"
    RELEASE_LOOKS = "a release looks for work"
    RELEASE_KEEPS_TIMER = "and for times that are ahead"
    GIVE_UP_NAMES_LEASE = "only the holder gives a session up"
    GIVE_UP_RESTORES = "a clean give-up does not count"
    REDRIVE_NAMES_NUMBER = "a redrive names the quarantine that it ends"
    GIVING_UP_ENDS_TURN = "an input that is given up takes its turn with it"
    DEFER_KEEPS_TIMER = "what is put off comes back"
    RECOVERY_NO_PROGRESS = "a recovery is no progress"
    DURABLE_SUBMIT = "a submission is acknowledged once the replica has it"
    DURABLE_CALL = "a tool runs once the replica has its call"
    DRAIN_RESOLVES_CLAIM = "a worker that stops waits for its claim's answer"


@dataclass(frozen=True)
class Rules:
    """The numbers of a fleet, and what is left out of the scripts in this run."""

    depth: int = 8
    max_attempts: int = 9
    suspect_after: int = 99
    without: frozenset[Guard] = frozenset()

    def keep(self, guard: Guard) -> bool:
        return guard not in self.without


class Submit(NamedTuple):
    session: int
    submission: int
    cls: str = "turn"
    policy: str = "enqueue"
    target: int = 0
    """The wait that is answered; the turn that is controlled, 0 for the current one."""
    key: str = ""
    due: bool = True
    content: int = 0
    may_create: bool = True
    late: bool = False
    """It runs after its not-after."""


class Cancel(NamedTuple):
    session: int
    submission: int
    target: int
    late: bool = False


class Delete(NamedTuple):
    session: int
    submission: int
    life: int
    late: bool = False


class Stop(NamedTuple):
    """An operator's quarantine."""

    session: int
    number: int
    late: bool = False


class Redrive(NamedTuple):
    session: int
    number: int
    skip: int = 0
    """The position of the input that is given up, 0 for none."""
    everything: bool = False
    """Give up all that is open."""
    late: bool = False


class Claim(NamedTuple):
    session: int
    worker: int
    boot: int
    nonce: int
    solo: bool = False
    late: bool = False


class Append(NamedTuple):
    session: int
    lease: Lease
    batch: int


class Commit(NamedTuple):
    session: int
    lease: Lease
    revision: int
    commit_id: tuple[int, int, int]
    """Nonce, revision and attempt of the worker that made it."""
    turn: int
    kind: str
    checkpoint: str = ""
    take: tuple[int, ...] = ()
    consume: tuple[tuple[int, int], ...] = ()
    """Wait and answer."""
    closes: tuple[int, ...] = ()
    opens: tuple[Wait, ...] = ()
    finish: str = ""
    next: str = "hold"
    progress: bool = False
    quantum: bool = True


class GiveUp(NamedTuple):
    session: int
    lease: Lease
    reason: str = "hand_off"


Request: TypeAlias = Submit | Cancel | Delete | Stop | Redrive | Claim | Append | Commit | GiveUp


class View(NamedTuple):
    """What a holder knows of the session after a reply."""

    revision: int
    turn: int
    turns: int
    checkpoint: str
    inputs: tuple[Input, ...]
    waits: tuple[Wait, ...]
    controlled: bool


class Reply(NamedTuple):
    word: str
    detail: str = ""
    """What else tells: `held` or `gone`, a submission's ending."""
    fence: int = 0
    view: View | None = None


def view(session: Session) -> View:
    return View(
        session.revision,
        session.turn,
        session.turns,
        session.checkpoint,
        waiting(session),
        session.waits,
        session.control is not None,
    )

"""Records: what the scripts take and answer, decoded. No I/O here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from changeover_shared._errors import PayloadError
from changeover_shared._events import Event
from changeover_shared._items import Wire
from changeover_shared._results import Draining, Pause
from changeover_shared._settings import Durability
from changeover_shared._words import CommitKind, Ending, Next, Status


@dataclass(frozen=True, slots=True)
class Lease:
    """The right of one incarnation to write one session: one grant, one nonce, one fence."""

    session_id: str
    fence: int
    incarnation: str
    nonce: str
    route: str
    """Where the session waits when nobody holds it."""

    @property
    def token(self) -> str:
        """The string that Redis compares byte for byte."""
        return f"{self.fence}|{self.incarnation}|{self.nonce}"


@dataclass(frozen=True, slots=True)
class Head:
    """A session's head hash."""

    status: Status
    life: int
    route: str
    agent: str
    tenant: str
    priority: int
    fence: int
    rev: int
    """The number of the last commit; each commit names the one it follows."""
    seq: int
    first_seq: int
    """The oldest event that retention has kept."""
    n: int
    """The highest inbox position given out."""
    turn: str
    """The open turn, or ''."""
    turns: int
    """How many turns have been started; turn `t_<k>` is the k-th."""
    transcript_n: int
    ctl_turn: str
    ctl_kind: str
    ctl_sub: str
    ctl_epoch: int
    parked: bool
    attempts: int
    epoch: int
    context: str
    """The session context as JSON, fixed at creation."""
    parent: str
    created_ms: int
    at_ms: int
    first_turn: int = 1
    """The oldest turn record that retention has kept."""
    context_epoch: int = 0
    """Which rewritten prefix of the context there is."""
    quarantine_no: int = 0
    stopped: str = ""
    """The body of the event that says why it is quarantined; '' if it is not."""
    raw: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Pulse:
    """Where a session's journal stands."""

    status: Status
    seq: int
    first_seq: int
    epoch: int
    """The server's history that the newest event was written in."""
    epoch_seq: int
    """The first event of that history: numbers from here on may have been used before."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """One unsettled inbox position."""

    n: int
    kind: Literal["turn", "steer", "join", "answer"]
    due_ms: int
    turn: str
    """The turn that holds it, or '' while it waits."""
    group: str
    """Set by a requeue: the next take must name the whole group."""
    submission_id: str
    key: str
    size: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Something that the open turn waits for."""

    wait_id: str
    kind: str
    """`approval`, `job`, `client`, `timer` ..."""
    deadline_ms: int
    """0 without one."""
    started: str
    answer_n: int
    """The inbox position of the answer, or 0."""


@dataclass(frozen=True, slots=True)
class Work:
    """A session's open things."""

    waiting: tuple[Waiting, ...]
    waits: tuple[Wait, ...]

    def open_inputs(self, now_ms: int) -> tuple[Waiting, ...]:
        """What a turn may take now, in order."""
        return tuple(
            w for w in self.waiting if w.kind != "answer" and not w.turn and w.due_ms <= now_ms
        )


@dataclass(frozen=True, slots=True)
class InboxEntry:
    """A submission's body as it lies in the inbox."""

    n: int
    submission_id: str
    body: bytes
    accepted_ms: int


@dataclass(frozen=True, slots=True)
class Grant:
    """A claim that succeeded."""

    lease: Lease
    remaining_ms: int
    head: Head
    work: Work
    checkpoint: bytes | None
    """None before the first commit, or when it is over 64 KiB: read it under the lease then."""
    inbox: tuple[InboxEntry, ...]
    """The oldest bodies, as far as they fit into 64 KiB together with the checkpoint."""
    lapsed: str
    """The lease string of the holder before, if it ended otherwise than by a clean release."""
    unreadable: PayloadError | None = None
    """Why what the session holds cannot be read here: it is to be given up as `unable`."""


@dataclass(frozen=True, slots=True)
class ClaimRefused:
    """A claim that was not granted; nothing is held."""

    session_id: str
    word: Literal["BUSY", "USED", "LATE", "NONE", "PAUSED", "QUARANTINED", "SUSPECT"]
    remaining_ms: int = 0
    why: str = ""
    """With QUARANTINED: the body of the event that says so."""


@dataclass(frozen=True, slots=True)
class Server:
    """A primary as it is judged before work begins."""

    name: str
    info: Mapping[str, str]
    config: Mapping[str, str]
    """The settings that the promises depend on; empty where that may not be asked."""
    skew_ms: int
    """How far this machine's clock is ahead of its."""


@dataclass(frozen=True, slots=True)
class Permit:
    """What one session needs to run besides a lease, where tenants or queues are limited."""

    session_id: str
    nonce: str
    """The nonce of the claim, or of the lease that it led to."""
    queue: str
    tenant: str
    """'' for a session of no tenant: none limits it."""


@dataclass(frozen=True, slots=True)
class Caps:
    """How many sessions of one tenant, and of one queue, may run at once; None: any number."""

    tenant: int | None = None
    queue: int | None = None


class Permitted(NamedTuple):
    """Whether a session may run."""

    until_ms: int
    """When its permit ends, on Redis's clock; 0 when it has none."""
    full: str = ""
    """`tenant` or `queue`: what runs as many sessions as it may."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """What one model allows, to everybody or to one tenant; 0: any number."""

    name: str
    tenant: str = ""
    """Whose; '' for everybody's."""
    requests: int = 0
    """A minute."""
    tokens: int = 0
    """A minute."""
    concurrency: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """One request to a model that is limited."""

    place: str
    """Who asks: the same until it has been let through."""
    request: str
    """This one request."""
    tokens: int
    """What it is estimated to come to."""
    buckets: tuple[Bucket, ...]
    """What has to let it through, the narrowest first."""


class Admission(NamedTuple):
    """Whether a model may be asked now."""

    wait_ms: int = 0
    """How long not yet; 0 when it may."""
    far: bool = False
    """The wait is longer than anybody waits: no place was taken."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What a server uses of what it may use, in bytes, as its own refusals count it."""

    used: int
    limit: int
    """0 when it has none."""


EVERYBODY: Final = "*"
"""Whose submissions all are, where else a tenant stands; no tenant is called so."""


class Crowd(NamedTuple):
    """Whose inboxes hold as many submissions as may wait, all together."""

    whose: str
    """A tenant, or `EVERYBODY`."""
    depth: int
    """How many waited when they were counted."""
    limit: int


class Refusals(NamedTuple):
    """Why messages are refused in a partition, whatever session they are for."""

    memory: tuple[int, int] | None = None
    """Bytes used and the limit, while memory is short."""
    full: tuple[Crowd, ...] = ()


@dataclass(frozen=True, slots=True)
class Peeked:
    """What a partition's indexes show."""

    expired: tuple[str, ...]
    """Sessions whose lease ran out, or lies further ahead than any lease may."""
    due: tuple[str, ...]
    ready: tuple[tuple[str, ...], ...]
    """Per asked ready key, oldest first, at most the window."""
    counts: tuple[int, ...]
    """Per asked ready key, how many there are in all."""
    pressure_ms: int = 0
    """For how long messages are still refused for want of memory; 0 when they are not."""
    waiting: Mapping[str, int] = field(default_factory=dict)
    """How many submissions wait, of `EVERYBODY` and of each tenant that has any; only if asked."""
    full: tuple[Crowd, ...] = ()
    """Whose messages are refused because too many wait."""
    full_until_ms: int = 0
    """Until when, on Redis's clock; 0 when nobody's are."""


@dataclass(frozen=True, slots=True)
class Renewed:
    """One lease's renewal."""

    session_id: str
    word: Literal["OK", "LOST", "GONE", "EXPIRED"]
    remaining_ms: int = 0
    alert: int = 0
    """The control epoch that the holder has not seen yet, or 0."""
    fence: int = 0
    """With LOST: the fence that holds the session now."""


@dataclass(frozen=True, slots=True)
class Appended:
    """An append that is durable."""

    first_seq: int
    ctl_epoch: int
    n: int
    dropped: bool = False
    """The turn's events are over the cap: deltas were left out, everything else was written."""


class BatchGap(Exception):
    """The store knows fewer batches of this grant than its holder: it has been rewound."""

    def __init__(self, batch: int) -> None:
        super().__init__(f"the store knows {batch} batches of this grant")
        self.batch = batch


@dataclass(frozen=True, slots=True)
class NewWait:
    """A wait that a commit opens."""

    wait_id: str
    kind: str
    deadline_ms: int = 0


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """A row that leaves with the commit."""

    row_id: str
    session_id: str
    body: str


@dataclass(frozen=True, slots=True)
class Commit:
    """Everything that one step changes, together or not at all."""

    commit_id: str
    rev: int
    """The revision that this commit follows."""
    turn: str
    """The open turn, '' for none; with `kind=start` the turn to open, `t_<turns + 1>`."""
    kind: CommitKind
    checkpoint: str
    next: Next = Next.HOLD
    take: tuple[int, ...] = ()
    consume: tuple[tuple[str, int], ...] = ()
    """(wait id, position of its answer) pairs that the turn takes in."""
    closes: tuple[str, ...] = ()
    """Waits that are over without an answer: their time has passed."""
    waits: tuple[NewWait, ...] = ()
    end: Literal["", "completed", "failed", "aborted", "requeue"] = ""
    progress: bool = False
    items: tuple[str, ...] = ()
    events: tuple[Event, ...] = ()
    drop_seqs: tuple[int, ...] = ()
    turn_record: str = ""
    outbox: tuple[OutboxRow, ...] = ()
    context: str = ""
    """The rewritten prefix of a new context epoch, or ''."""
    context_epoch: int = 0
    keep_from: int = 0
    """The oldest transcript item that the context still needs; 0 leaves it."""
    max_step_ms: int = 600_000
    """How long the next step may take before the lease stops being renewed."""
    quantum_left: bool = True
    durable: bool = False
    """What follows may do what must not be done twice: it waits until this is as safe as the
    process was told."""


@dataclass(frozen=True, slots=True)
class Committed:
    """A commit that is durable."""

    held: bool
    """False: the lease went with the commit, or has ended since."""
    rev: int
    first_seq: int
    """The number of the commit's first event."""
    n: int
    """The highest inbox position given out: above the known one, read the inbox."""
    ctl_epoch: int
    ctl_kind: str
    """`interrupt` or `rollback` when the open turn has a control, else ''."""
    waiting: int
    """How many inputs wait and are due."""
    ready_count: int
    status: Status
    replayed: bool = False


CommitRefusal = Literal[
    "REWOUND", "CONFLICT", "CONTROL", "INPUT", "BAD_PARK", "CONTEXT", "TOO_BIG", "ROUTE"
]


@dataclass(frozen=True, slots=True)
class CommitRefused:
    """A commit that changed nothing, while the lease still stands."""

    word: CommitRefusal
    detail: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Create:
    """What a session is created with, if the submission finds none."""

    route: str
    agent: str
    tenant: str = ""
    context: str = "{}"
    parent: str = ""


@dataclass(frozen=True, slots=True)
class Submit:
    """One submission as the script takes it."""

    session_id: str
    submission_id: str
    digest: str
    cls: Literal["turn", "answer", "ctl"]
    body: str
    create: Create
    policy: str = "enqueue"
    """'' for the default of the session's agent."""
    key: str = ""
    quiet_ms: int = 0
    """With `debounce`: how long nothing more may come before it counts as due."""
    max_wait_ms: int = 0
    """And how long it waits at most, from the first that it was gathered with."""
    target: str = ""
    """An answer's wait id, or the turn that a control names ('' for the running one)."""
    due_ms: int = 0
    """When it may run, on Redis's clock; 0 for at once."""
    delay_ms: int = 0
    """How long after its acceptance it may run."""
    priority: int = 0
    may_create: bool = True
    event: Event | None = None
    """Written with the submission: the `message` event."""
    durability: Durability | None = None
    """What it waits for before it counts as accepted; None for what the process was told."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """A submission that is durable, now or before."""

    word: Literal["ACCEPTED", "MERGED", "DUPLICATE"]
    n: int
    seq: int
    turn: str
    status: Status
    ready_count: int
    position: int
    agent: str
    route: str
    replaced: tuple[str, ...] = ()
    ending: Ending | None = None


@dataclass(frozen=True, slots=True)
class SubmissionState:
    """What a receipt says of a submission."""

    submission_id: str
    n: int
    seq: int
    ending: Ending | None
    turn: str
    end_seq: int
    accepted_ms: int
    ended_ms: int


@dataclass(frozen=True, slots=True)
class NoTurn:
    """A control that found no turn to control, or another one than it named."""

    turn: str
    """The turn that runs, or ''."""


@dataclass(frozen=True, slots=True)
class CancelAnswer:
    """What the control script says to a cancel."""

    word: Literal["CANCELLED", "RUNNING", "ENDED", "UNKNOWN"]
    turn: str = ""
    ending: Ending | None = None
    quarantined: bool = False
    """With RUNNING: nobody runs the turn until the session is redriven."""


Drop = Literal["nothing", "input", "all"]
"""What is given up when a session is let go on: the input that its turn has taken or would take
next, or all that is open."""


@dataclass(frozen=True, slots=True)
class GivenUp:
    """What leaves a session with its quarantine."""

    skip: int = 0
    """The position of the one input that is given up; 0 for none, or for all."""
    submissions: tuple[str, ...] = ()
    turn: str = ""
    """The turn that ends with them, or ''."""
    record: str = ""
    """Its record, or ''."""
    last: int = 0
    """The position of the last input that is given up."""


class Standing(NamedTuple):
    """Where a session stands, and nothing else of it."""

    status: Status
    queue: str
    at_ms: int
    """When its newest event was written."""
    aside_ms: int = 0
    """Until when it has stepped aside, because as many run as may; 0 if it has not."""


@dataclass(frozen=True, slots=True)
class Rush:
    """What of a fleet changes with every claim, counted."""

    running: int
    ready: Mapping[str, int]
    """Route -> how many sessions wait in it, without suspects."""
    filled: tuple[str, ...]
    """The keys of the ready sets that hold something."""


@dataclass(frozen=True, slots=True)
class Quiet:
    """What of a fleet changes slowly, counted."""

    sessions: int
    timers: int
    quarantined: int
    suspects: Mapping[str, int]
    """Route -> how many wait for a process that holds nothing else."""
    pauses: tuple[Mapping[str, Pause], ...]
    """Per partition, the queues that are paused there."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A session as plain reads find it; not one moment, but good enough to look at."""

    session_id: str
    head: Head
    work: Work
    owner: str
    """The lease string of the holder, or ''."""
    lease_ms: int
    """When the lease runs out, on Redis's clock; 0 without a holder."""
    checkpoint: bytes | None


class Order(Wire):
    """What a worker shall do, and then what it has done."""

    grace_ms: int | None = None
    """How long it may wait for step boundaries; None for its own setting."""
    given_ms: int = 0
    """When it was given, on Redis's clock: the newest one counts."""
    evicted: bool = False
    """It was declared dead: it stops at once, and is to be replaced."""
    drained: Draining | None = None
    """How it came to its end, once it has."""

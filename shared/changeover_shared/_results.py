"""Results: what reading and submitting answer with. All frozen."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Generic, Literal, TypeVar

from pydantic import model_validator

from changeover_shared._events import Failure
from changeover_shared._items import (
    AnyItem,
    Count,
    Json,
    Usage,
    Wire,
)
from changeover_shared._words import Ending, SessionStatus

T = TypeVar("T")


def at(ms: int) -> datetime:
    """Milliseconds on Redis's clock as a time."""
    return datetime.fromtimestamp(ms / 1000, UTC)


def shown_time(ms: int) -> str:
    """The same as people read it: `2026-12-01T08:00:00Z`."""
    return at(ms).isoformat(timespec="seconds").replace("+00:00", "Z")


class Receipt(Wire):
    """The answer to a submission that is durable now and will end exactly once."""

    session_id: str
    submission_id: str
    answer: Literal["accepted", "duplicate", "merged"]
    """`duplicate`: it was accepted before, with the same content. `merged`: the turn already has
    an interrupt."""
    position: int = 0
    """How many submissions of the session wait before it."""
    seq: int = 0
    """The number of the submission's own `message` event: `follow(after=receipt.seq)` misses
    nothing of the answer. For other ops, the newest event's number at acceptance."""
    replaced: tuple[str, ...] = ()
    """Waiting submissions that gave way to this one."""


class Refused(Wire):
    """One item of `submit_many` that was not accepted."""

    session_id: str
    submission_id: str
    code: str
    text: str
    retry_after_ms: int | None = None


class TurnRecord(Wire):
    """One finished turn, written by the commit that ended it."""

    turn_id: str
    submission_ids: tuple[str, ...]
    ending: Ending
    reply_to: tuple[str, ...] = ()
    """The channels that its messages named, each once, in the order in which they were taken."""
    text: str = ""
    output: Json = None
    stop: str | None = None
    """`length` or `refusal` when the answer ended so."""
    error: Failure | None = None
    usage: Usage = Usage()
    steps: Count = 0
    tool_calls: Count = 0
    failed_tool_calls: Count = 0
    takeovers: Count = 0
    model: str | None = None
    first_item: Count = 0
    """The number of its first transcript item."""
    last_item: Count = 0
    """And of its last; below `first_item` if it has none."""
    started_at_ms: Count = 0
    finished_at_ms: Count = 0

    @model_validator(mode="after")
    def _consistent(self) -> TurnRecord:
        if self.finished_at_ms < self.started_at_ms:
            raise ValueError("a turn cannot end before it began")
        if self.failed_tool_calls > self.tool_calls:
            raise ValueError("more tool calls failed than there were")
        return self


class Outcome(Wire):
    """How a submission ended."""

    session_id: str
    submission_id: str
    ending: Ending
    turn_id: str | None = None
    reply_to: tuple[str, ...] = ()
    """Where its turn's answer goes: the channels that the turn's messages named, each once. The
    outcomes of messages that shared a turn say the same; one that had no turn goes nowhere."""
    text: str = ""
    output: Json = None
    stop: str | None = None
    """`length` or `refusal` when the answer ended so."""
    error: Failure | None = None
    usage: Usage = Usage()
    steps: int = 0
    tool_calls: int = 0
    takeovers: int = 0
    started_at_ms: int = 0
    finished_at_ms: int = 0

    @property
    def started_at(self) -> datetime:
        """When its turn started."""
        return at(self.started_at_ms)

    @property
    def finished_at(self) -> datetime:
        """When it ended."""
        return at(self.finished_at_ms)


class Interrupted(Wire):
    """What an interrupt came to; never an error."""

    session_id: str
    answer: Literal["accepted", "merged", "duplicate", "no_turn", "stale_turn"]
    turn_id: str | None = None
    """The turn that it stops, or the one that runs instead of the named one."""
    submission_id: str
    quarantined: bool = False
    """The session is: the turn ends once that is redriven."""


class Cancelled(Wire):
    """What a cancel came to; never an error."""

    session_id: str
    submission_id: str
    answer: Literal["cancelled", "already_running", "already_ended", "unknown"]
    turn_id: str | None = None
    ending: Ending | None = None
    quarantined: bool = False
    """With `already_running`: the session is quarantined, so nobody runs its turn for now."""


class SessionInfo(Wire):
    """A session as it stands now."""

    session_id: str
    agent: str
    queue: str
    status: SessionStatus
    tenant: str | None = None
    worker: str | None = None
    """The incarnation that holds it."""
    model: str | None = None
    turn_id: str | None = None
    seq: int = 0
    first_seq: int = 1
    revision: int = 0
    fence: int = 0
    inbox: int = 0
    """Submissions that wait."""
    waiting: str | None = None
    """What a parked session waits for, or an idle one whose messages have a time of their own."""
    stopped: str | None = None
    """Why it is quarantined, if it is."""
    usage: Usage = Usage()
    context: Mapping[str, str] = {}
    metadata: Mapping[str, Json] = {}
    parent: str | None = None
    created_at_ms: int = 0
    updated_at_ms: int = 0

    @property
    def created_at(self) -> datetime:
        """When its first submission was accepted."""
        return at(self.created_at_ms)

    @property
    def updated_at(self) -> datetime:
        """When its newest event was written."""
        return at(self.updated_at_ms)


class Quarantined(Wire):
    """A session that is stopped until an operator acts, and why."""

    session_id: str
    agent: str
    queue: str
    tenant: str | None = None
    since_ms: int = 0
    attempts: int = 0
    """Grants in a row without progress."""
    cause: Literal["attempts", "time", "worker", "operator"] = "attempts"
    """Too many grants without progress, too long without it, its own worker found it broken, or an
    operator stopped it."""
    error: str | None = None
    """What is known of how it failed last; an operator's reason."""
    by: str | None = None
    worker: str | None = None
    """The incarnation that held it last."""
    doing: str | None = None
    """The tool calls or the step that were open then."""
    turn_id: str | None = None
    submission_ids: tuple[str, ...] = ()
    """What the open turn has taken."""
    inbox: int = 0
    """Submissions that wait."""
    why: str = ""
    """All of it in one line."""

    @property
    def since(self) -> datetime:
        """When it was stopped."""
        return at(self.since_ms)


class Redriven(Wire):
    """What a redrive came to for one session."""

    session_id: str
    answer: Literal["redriven", "would_redrive", "not_quarantined", "unknown", "failed"]
    """`would_redrive`, of a dry run, and `not_quarantined`: nothing was changed. `failed`: `error`
    says why, nothing is known."""
    status: SessionStatus | None = None
    dropped: tuple[str, ...] = ()
    """The submissions that were dead-lettered."""
    ended_turn: str | None = None
    """The turn that had taken them, which has ended with them."""
    error: str | None = None


class Purged(Wire):
    """What a purge has forgotten, or would."""

    sessions: tuple[str, ...] = ()
    """Closed or idle sessions that were deleted."""
    tombstones: int = 0
    receipts: int = 0
    trimmed: int = 0
    """Sessions that held more events or turn records than is kept."""


class PayloadKey(Wire):
    """What one payload key has encrypted of what is stored."""

    key_id: str | None
    """The beginning of the key's SHA-256 in hex; None for what is not encrypted."""
    values: int
    """How many events, transcript items, turn records and so on."""
    sessions: int
    """In how many sessions, deleted ones that are remembered among them."""


class Pause(Wire):
    """Why nothing of a queue is granted."""

    by: str = ""
    reason: str = ""
    since_ms: int = 0


class QueueInfo(Wire):
    """A queue as it stands now."""

    queue: str
    state: Literal["open", "paused", "partly_paused"] = "open"
    """`partly_paused`: a pause or a resume that did not reach every partition; repeat it."""
    ready: int = 0
    """Sessions that wait for a worker."""
    oldest_ms: int | None = None
    """For how long the oldest of them has waited; None when none does."""
    running: int = 0
    parked: int = 0
    quarantined: int = 0
    workers: int = 0
    """Running workers that serve it."""
    turns_per_minute: int = 0
    """Turns that have ended lately in workers that are not silent."""
    paused: Pause | None = None


class TranscriptItem(Wire):
    """One item of a transcript with its number."""

    n: int
    item: AnyItem


class Page(Wire, Generic[T]):
    """Some of many, and the cursor of the rest; `next` is None at the end."""

    items: tuple[T, ...]
    next: str | None = None


class Schedule(Wire):
    """A message that is sent to a session again and again."""

    name: str
    session_id: str
    due_at_ms: int
    """When it is sent next; a time that has passed is being tried."""
    text: str | None = None
    """None, as all that follows, where only others can read it."""
    agent: str | None = None
    queue: str | None = None
    cron: str | None = None
    tz: str | None = None
    every_ms: int | None = None
    missed: Literal["once", "skip"] | None = None
    policy: str | None = None
    """None for the agent's."""
    priority: int = 0

    @property
    def due_at(self) -> datetime:
        """When it is sent next."""
        return at(self.due_at_ms)


class QueueActivity(Wire):
    """What one worker does for one queue, since its start and lately."""

    sessions: int = 0
    """Held now."""
    claims: int = 0
    """Sessions that it was granted."""
    takeovers: int = 0
    """Of them, those that their holder before had not released."""
    turns: int = 0
    """Turns that have ended here, however they did."""
    recent_claims: int = 0
    """Claims in the last `WorkerInfo.recent_ms`, and so on."""
    recent_takeovers: int = 0
    recent_turns: int = 0


class Draining(Wire):
    """How far a worker has come that stops."""

    sessions: int
    """How many it held when it was told to."""
    left: int
    """How many of them it still holds."""
    forced: int = 0
    """How many did not reach a step boundary within the grace."""
    grace_ms: int = 0
    since_ms: int = 0


class WorkerInfo(Wire):
    """A worker process as it last described itself, with what Redis knows of it."""

    worker: str
    incarnation: str
    build: str = ""
    host: str = ""
    pid: int = 0
    state: Literal["running", "draining", "silent"] = "running"
    queues: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    slots: int = 0
    sessions: int = 0
    started_at_ms: int = 0
    renewed_at_ms: int = 0
    """When it last said all this: once per `CHANGEOVER_RENEW`."""
    activity: Mapping[str, QueueActivity] = {}
    """Queue -> what it does for it; only queues that it has had a session of."""
    recent_ms: int = 0
    """How far back `recent_turns` and the like reach: about a minute, less while it is young."""
    draining: Draining | None = None
    """While it drains: how far it has come."""
    sees_connections: bool = True
    """Whether it may see which connections there are, and its own ones have its name: without, a
    death of others is noticed when their leases end, or by their supervisor."""


class DrainProgress(Wire):
    """What becomes of a worker that was told to drain."""

    worker: str
    incarnation: str
    state: Literal["asked", "draining", "drained", "silent", "gone"]
    """`asked`: it has been told, by Redis. `silent`: it does not renew its registration; what it
    holds is taken over when its leases end. `gone`: it ended without having drained."""
    sessions: int = 0
    """How many sessions it held when it began."""
    handed_off: int = 0
    """How many of them it holds no more."""
    forced: int = 0
    """How many did not reach a step boundary within the grace."""
    grace_ms: int = 0
    took_ms: int = 0
    """How long ago it was told."""


class Evicted(Wire):
    """A worker that was declared dead."""

    worker: str
    incarnation: str
    sessions: int
    """How many sessions it held: they go on elsewhere."""

"""Everything this package raises on purpose.

* ChangeoverError                 the root; never raised itself
  + RequestError                  the caller can act
    - Invalid                       before any I/O: a field is not what it may be
    - TooLarge                      before any I/O: a message is over its limit
    - UnknownSession, UnknownSubmission, UnknownWorker
    - Closed, Deleted               the session takes nothing more
    - SessionHeld                   a worker holds the session
    - Busy                          a bound is reached; the same id may be sent again later
    - TooManySchedules              a bound that does not pass by itself
    - IdReused, IdExpired           the submission id names something else, or is too old
    - NotWaiting, AlreadyDecided    an answer that nobody waits for
    - WaitTimeout                   the work goes on
    - NotCompleted                  raised by `run` alone, carries the outcome
      > TurnFailed, TurnAborted, Superseded, CancelledSubmission, DeadLettered
  + StoreUnavailable              Redis did not answer; the outcome is unknown
  + NotDurable                    it was done, and is not yet as safe as was asked for
  + LeaseError                    this worker no longer speaks for the session
    - LeaseLost, LeaseGone, LeaseExpired, SessionDeleted
  + SetupError                    start-up; exit 78
    - PartitionMismatch, FormatTooNew, ServerUnfit, AppNotFound, AppFailed, ExtraMissing,
      KeyMissing, BindFailed
    - PayloadError                  what Redis holds of a conversation cannot be read here
      > PayloadKeyMissing, PayloadDamaged
  + ToolError                     raised by tools; its text goes to the model
  + StopTurn                      raised by tools; its turn ends as failed
  + StepFailed, OutcomeUnknown    raised in handlers: how a durable step ended

Every text says what happened, what was left unchanged, and what to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, ClassVar

from changeover_shared._sizes import show_size

if TYPE_CHECKING:
    from changeover_shared._results import Outcome, Receipt


class ChangeoverError(Exception):
    """The root of every error that this package raises on purpose."""

    code: ClassVar[str] = "error"
    """The same word in Python, in `--json` and in logs."""


class RequestError(ChangeoverError):
    """The caller can act on it."""


class Invalid(RequestError, ValueError):
    """A field is not what it may be. Raised before any I/O, but for a time that Redis's clock says
    is too far away; also a `ValueError`."""

    code = "invalid"

    def __init__(self, *, field: str, reason: str, unchanged: str = "nothing was sent") -> None:
        super().__init__(f"{field}: {reason}; {unchanged}")
        self.field = field
        self.reason = reason


class TooLarge(RequestError):
    """Something is over its limit. Nothing was accepted."""

    code = "too_large"

    def __init__(self, *, what: str, size: int, limit: int, remedy: str = "send less") -> None:
        super().__init__(
            f"{what} is {size} bytes of UTF-8, the limit is {limit}; nothing was accepted; {remedy}"
        )
        self.what = what
        self.size = size
        self.limit = limit


class UnknownSession(RequestError):
    """No such session. Sessions appear with their first submission."""

    code = "unknown_session"

    def __init__(self, *, session_id: str) -> None:
        super().__init__(
            f"no session {session_id!r}; nothing was changed; "
            "sessions appear with their first submission"
        )
        self.session_id = session_id


class UnknownSubmission(RequestError):
    """The session has no such submission, or it left the deduplication window."""

    code = "unknown_submission"

    def __init__(self, *, session_id: str, submission_id: str) -> None:
        super().__init__(
            f"session {session_id!r} knows no submission {submission_id!r}; nothing was changed; "
            "it was never accepted, or its receipt has left the deduplication window"
        )
        self.session_id = session_id
        self.submission_id = submission_id


class UnknownWorker(RequestError):
    """No worker is registered under that name, or runs that build. Nothing was changed."""

    code = "unknown_worker"

    def __init__(self, *, worker: str | None = None, build: str | None = None) -> None:
        which = f"no worker {worker!r}" if worker is not None else f"no worker of build {build!r}"
        super().__init__(
            f"{which} is registered; nothing was changed; changeover workers lists those that are"
        )
        self.worker = worker
        self.build = build


class Closed(RequestError):
    """The session was closed. Nothing was accepted."""

    code = "closed"

    def __init__(self, *, session_id: str) -> None:
        super().__init__(
            f"session {session_id!r} is closed; nothing was accepted; use another session"
        )
        self.session_id = session_id


class SessionHeld(RequestError):
    """A worker holds the session. Nothing was changed."""

    code = "session_held"

    def __init__(self, *, session_id: str, remaining_ms: int) -> None:
        super().__init__(
            f"session {session_id!r} is held by a worker for {remaining_ms} ms more at least; "
            "nothing was changed; ask again once its turn has ended, or interrupt it"
        )
        self.session_id = session_id
        self.remaining_ms = remaining_ms


class Deleted(RequestError):
    """The session was deleted. Nothing was accepted."""

    code = "deleted"

    def __init__(self, *, session_id: str) -> None:
        super().__init__(
            f"session {session_id!r} was deleted; nothing was accepted; "
            "a message to this id begins a new session"
        )
        self.session_id = session_id


class Busy(RequestError):
    """A bound is reached. Nothing was accepted; the same id may be sent again."""

    code = "busy"

    def __init__(
        self, *, session_id: str, scope: str, depth: int, limit: int, retry_after: timedelta
    ) -> None:
        full = _FULL.get(scope, f"{scope} of {{session!r}} holds {{depth}} of {{limit}}")
        counts = f" ({show_size(depth)} of {show_size(limit)})" if limit else ""
        said = full.format(session=session_id, depth=depth, limit=limit, counts=counts)
        super().__init__(
            f"{said}; nothing was accepted; "
            f"submit again with the same id after {retry_after.total_seconds():g} s"
            f"{_REMEDIES.get(scope, '')}"
        )
        self.session_id = session_id
        self.scope = scope
        """`inbox` (submissions), `inbox bytes`, `tenant` and `fleet` (submissions in all their
        sessions, as they were counted some seconds ago), `turn` (policy reject), `receipts` or
        `memory` (bytes; 0 where they are not known)."""
        self.depth = depth
        self.limit = limit
        self.retry_after = retry_after


_FULL: Mapping[str, str] = {
    "inbox": "the inbox of {session!r} holds {depth} of {limit} submissions",
    "inbox bytes": "the inbox of {session!r} holds {depth} of {limit} bytes",
    "tenant": "the tenant of {session!r} has {depth} submissions waiting, and {limit} may",
    "fleet": "{depth} submissions wait in the fleet, and {limit} may: {session!r} takes none now",
    "turn": "{session!r} has something to do already, and this submission may not wait for it",
    "receipts": "{session!r} has {depth} of {limit} receipts, none of them old enough to forget",
    "memory": "Redis is short of memory{counts}, so {session!r} takes nothing now",
}
"""What each scope of `Busy` means."""

_REMEDIES: Mapping[str, str] = {
    "memory": "; changeover purge and delete free memory, a higher maxmemory gives more",
}
"""What else a person can do about a scope."""


class TooManySchedules(RequestError):
    """The fleet has as many schedules as it may have. Nothing was changed."""

    code = "too_many_schedules"

    def __init__(self, *, count: int, limit: int) -> None:
        super().__init__(
            f"the fleet has {count} of {limit} schedules; nothing was changed; "
            "take one away with unschedule, or submit messages with a time of their own"
        )
        self.count = count
        self.limit = limit


class IdReused(RequestError):
    """The id was accepted with other content before. Nothing was accepted now."""

    code = "id_reused"

    def __init__(self, *, session_id: str, submission_id: str, first: datetime) -> None:
        super().__init__(
            f"{submission_id!r} was accepted by session {session_id!r} with other content at "
            f"{first:%Y-%m-%d %H:%M:%S} UTC; nothing was accepted now; ids name one submission, "
            "use another one"
        )
        self.session_id = session_id
        self.submission_id = submission_id
        self.first = first
        """When the id was accepted."""


class IdExpired(RequestError):
    """The id's time is before the deduplication floor, or far in the future."""

    code = "id_expired"

    def __init__(self, *, submission_id: str, reason: str) -> None:
        super().__init__(f"{submission_id!r} {reason}; nothing was accepted; use a new id")
        self.submission_id = submission_id


class NotWaiting(RequestError):
    """Nobody waits for this answer any more. Nothing was accepted."""

    code = "not_waiting"

    def __init__(self, *, session_id: str, request_id: str) -> None:
        super().__init__(
            f"{request_id!r} of session {session_id!r} is not waiting any more: its turn ended; "
            f"nothing was accepted; see changeover show {session_id} for what waits"
        )
        self.session_id = session_id
        self.request_id = request_id


class AlreadyDecided(RequestError):
    """The first answer won. This one changed nothing."""

    code = "already_decided"

    def __init__(self, *, session_id: str, request_id: str) -> None:
        super().__init__(
            f"{request_id!r} of session {session_id!r} was answered before; your answer changed "
            f"nothing, the first one stands; see changeover show {session_id} --events"
        )
        self.session_id = session_id
        self.request_id = request_id


class WaitTimeout(RequestError):
    """The wait is over, the work is not."""

    code = "wait_timeout"

    def __init__(self, *, receipt: Receipt, waited: timedelta, due: datetime | None = None) -> None:
        self._goes_on = "it goes on"
        if due is not None:
            when = due.isoformat(timespec="seconds").replace("+00:00", "Z")
            self._goes_on = f"it is due at {when}"
        super().__init__(
            f"submission {receipt.submission_id!r} of session {receipt.session_id!r} has not ended "
            f"after {waited.total_seconds():g} s; {self._goes_on}; wait again with "
            f"client.wait({receipt.session_id!r}, {receipt.submission_id!r})"
        )
        self.receipt = receipt
        self.waited = waited
        self.due = due
        """When it may run, if its time has not come."""


class NotCompleted(RequestError):
    """The submission ended otherwise than completed. Raised by `run` alone."""

    code = "not_completed"

    def __init__(self, outcome: Outcome) -> None:
        detail = f": {outcome.error.message}" if outcome.error else ""
        super().__init__(
            f"submission {outcome.submission_id!r} of session {outcome.session_id!r} "
            f"{outcome.ending}{detail}; the session is usable; "
            f"see changeover show {outcome.session_id} --turns"
        )
        self.outcome = outcome


class TurnFailed(NotCompleted):
    """The turn failed; `outcome.error` says why."""

    code = "failed"


class TurnAborted(NotCompleted):
    """The turn was interrupted."""

    code = "aborted"


class Superseded(NotCompleted):
    """A newer submission took its place."""

    code = "superseded"


class CancelledSubmission(NotCompleted):
    """It was cancelled before it ran, or its session was closed."""

    code = "cancelled"


class DeadLettered(NotCompleted):
    """Its session was quarantined and an operator gave it up."""

    code = "dead_lettered"


class StoreUnavailable(ChangeoverError):
    """Redis did not answer. What was asked for may or may not have happened."""

    code = "store_unavailable"

    def __init__(
        self, *, reason: str, submission_id: str | None = None, where: str | None = None
    ) -> None:
        reason = reason.rstrip(".")
        if where is not None:
            text = (
                f"no Redis answers at {where}: {reason}; nothing was sent; {_else(where, reason)}"
                "start it, or name "
                "another one: CHANGEOVER_REDIS_URL, or embedded://./.changeover for one of your own"
            )
        elif submission_id is None:
            text = f"Redis did not answer: {reason}; the outcome is unknown; try again"
        else:
            text = (
                f"Redis did not answer: {reason}; the submission may or may not be accepted; "
                f"submitting again with id {submission_id!r} is safe"
            )
        super().__init__(text)
        self.reason = reason
        self.submission_id = submission_id
        self.where = where
        """The server that could not be reached at all; None once it has answered."""


_MISTAKEN = {
    "Hostname mismatch": "use the host that its certificate names",
    "certificate required": "give this process one: ssl_certfile and ssl_keyfile in the URL",
    "certificate verify failed": "name the authority that signed it: ssl_ca_certs in the URL",
    "cluster support disabled": "it is one server, use redis://",
    "No master found": "check the name of the service in the URL",
}
"""What a reason may hold when a server does answer and the URL does not fit it."""


def _else(where: str, reason: str) -> str:
    """What is more likely than a server that does not run, if something is."""
    for text, remedy in _MISTAKEN.items():
        if text in reason:
            return f"{remedy}; else "
    # A certificate that is refused shows that it does speak TLS.
    if not where.startswith("rediss://") or "certificate" in reason.lower():
        return ""
    return "if the server does not speak TLS, use redis://; else "


class NotDurable(ChangeoverError):
    """What was asked for was done, and its disk or replicas have not confirmed it in time."""

    code = "not_durable"

    def __init__(
        self,
        *,
        durability: str,
        confirmed: int,
        needed: int,
        waited: timedelta,
        submission_id: str | None = None,
    ) -> None:
        who = "replicas" if durability == "replica" else "disks"
        if submission_id is None:
            said, again = "it was done", "asking again"
        else:
            said, again = "accepted", f"submitting again with id {submission_id!r}"
        super().__init__(
            f"{said}; {confirmed} of {needed} {who} confirmed within "
            f"{waited / timedelta(milliseconds=1):.0f} ms, until then a failover may forget it; "
            f"{again} is safe and waits anew"
        )
        self.submission_id = submission_id
        self.durability = durability
        self.confirmed = confirmed
        self.needed = needed


class LeaseError(ChangeoverError):
    """This worker no longer speaks for the session and must stop writing."""

    code = "lease"


class LeaseLost(LeaseError):
    """A newer grant holds the session. Nothing was written."""

    code = "lease_lost"

    def __init__(self, *, session_id: str, fence: int, current: int) -> None:
        super().__init__(
            f"session {session_id!r}: fence {fence} was superseded by {current}; "
            "nothing was written; let it go, its new holder goes on"
        )
        self.session_id = session_id
        self.fence = fence
        self.current = current


class LeaseGone(LeaseError):
    """Nobody holds the session. Nothing was written."""

    code = "lease_gone"

    def __init__(self, *, session_id: str, fence: int) -> None:
        super().__init__(
            f"session {session_id!r}: fence {fence} was given up; nothing was written; "
            "let it go, whoever claims it next goes on"
        )
        self.session_id = session_id
        self.fence = fence


class LeaseExpired(LeaseError):
    """The lease ran out on Redis's clock before the write came. Nothing was written."""

    code = "lease_expired"

    def __init__(self, *, session_id: str, fence: int) -> None:
        super().__init__(
            f"session {session_id!r}: fence {fence} expired; nothing was written; "
            "let it go, whoever claims it next goes on"
        )
        self.session_id = session_id
        self.fence = fence


class SessionDeleted(LeaseError):
    """The session was deleted under its holder. Nothing was written."""

    code = "session_deleted"

    def __init__(self, *, session_id: str) -> None:
        super().__init__(
            f"session {session_id!r} was deleted; nothing was written; let it go, its turn is over"
        )
        self.session_id = session_id


class SetupError(ChangeoverError):
    """The process cannot start with this configuration or this server."""

    code = "setup"


class PartitionMismatch(SetupError):
    """The fleet was created with another number of partitions or another layout."""

    code = "partition_mismatch"

    def __init__(self, *, prefix: str, fleet: int, asked: int) -> None:
        super().__init__(
            f"fleet {prefix!r} has {fleet} partitions, you asked for {asked}; nothing was "
            "written; unset CHANGEOVER_PARTITIONS or use another CHANGEOVER_PREFIX"
        )
        self.prefix = prefix
        self.fleet = fleet
        self.asked = asked


class FormatTooNew(SetupError):
    """The fleet or a session was written by a newer release than this one."""

    code = "format_too_new"

    def __init__(self, *, what: str, found: str) -> None:
        super().__init__(
            f"{what} has format {found}, which this release cannot read; nothing was changed; "
            "upgrade this process"
        )
        self.what = what
        self.found = found


class ServerUnfit(SetupError):
    """The server lacks something that the promises need."""

    code = "server_unfit"

    def __init__(self, findings: Sequence[str]) -> None:
        super().__init__(
            f"this Redis cannot be used: {'; '.join(findings)}; nothing was written; "
            "put that right or use another server"
        )
        self.findings = tuple(findings)


class AppNotFound(SetupError):
    """`module:attribute` does not lead to an App."""

    code = "app_not_found"

    def __init__(self, *, target: str, reason: str) -> None:
        super().__init__(
            f"no app at {target!r}: {reason}; nothing was claimed; "
            "name it as module:attribute, for example bot:app"
        )
        self.target = target


class AppFailed(SetupError):
    """The app's lifespan raised before the worker was ready."""

    code = "app_failed"

    def __init__(self, *, reason: str) -> None:
        super().__init__(
            f"the app's lifespan failed: {reason}; nothing was claimed; "
            "put that right and start the worker again"
        )
        self.reason = reason


class BindFailed(SetupError):
    """The address to listen on is taken, or not this process's to take."""

    code = "bind_failed"

    def __init__(self, *, bind: str, reason: str) -> None:
        super().__init__(
            f"cannot listen on {bind!r}: {reason}; nothing was claimed; "
            "set CHANGEOVER_HEALTH_BIND to an address that is free, or to off"
        )
        self.bind = bind
        self.reason = reason


class ExtraMissing(SetupError):
    """An optional part is not installed."""

    code = "extra_missing"

    def __init__(self, *, what: str, extra: str) -> None:
        super().__init__(
            f"{what} needs a part that is not installed; nothing was started; "
            f"pip install 'changeover[{extra}]'"
        )
        self.what = what
        self.extra = extra


class KeyMissing(SetupError):
    """A provider was named without an API key for it."""

    code = "key_missing"

    def __init__(self, *, what: str, variable: str) -> None:
        super().__init__(
            f"{what} has no API key; nothing was sent; set {variable} or pass api_key="
        )
        self.what = what
        self.variable = variable


class PayloadError(SetupError):
    """What Redis holds of a conversation cannot be read here. Nothing was changed."""

    code = "payload"

    what: str
    key_id: str
    """The key that it is encrypted with: the beginning of its SHA-256 in hex."""


class PayloadKeyMissing(PayloadError):
    """It is encrypted with a key that this process was not given."""

    code = "payload_key_missing"

    def __init__(self, *, what: str, key_id: str) -> None:
        super().__init__(
            f"{what} is encrypted with key {key_id}, which this process does not have; nothing "
            "was changed; add the file that holds it to CHANGEOVER_PAYLOAD_KEYS"
        )
        self.what = what
        self.key_id = key_id


class PayloadDamaged(PayloadError):
    """It is not what was written there: changed, cut off, or moved from another place."""

    code = "payload_damaged"

    def __init__(self, *, what: str, key_id: str) -> None:
        super().__init__(
            f"{what} does not open with its key {key_id}: it is not what was written there; "
            "nothing was changed; restore it from a copy of Redis, or delete the session"
        )
        self.what = what
        self.key_id = key_id


class ToolError(ChangeoverError):
    """Raised by a tool: the text goes to the model as the call's error result."""

    code = "tool_error"

    def __init__(self, text: str, *, retryable: bool = False) -> None:
        super().__init__(text)
        self.retryable = retryable


class StepFailed(ChangeoverError):
    """A handler's step failed, with all its retries. Raised again each time the turn is replayed;
    the step is not run again."""

    code = "step_failed"

    def __init__(self, *, step: str, text: str) -> None:
        super().__init__(
            f"step {step!r} failed: {text}; it is not run again in this turn; "
            "catch it, or let the turn fail"
        )
        self.step = step
        self.text = text
        """What it said."""


class OutcomeUnknown(ChangeoverError):
    """A handler's step may or may not have run: its worker ended while it ran. Raised again each
    time the turn is replayed."""

    code = "outcome_unknown"

    def __init__(self, *, step: str) -> None:
        super().__init__(
            f"step {step!r} may or may not have run, its worker ended meanwhile; "
            "it is not run again in this turn; look what became of it, then decide"
        )
        self.step = step


class StopTurn(ChangeoverError):
    """Raised by a tool: the turn ends as failed once all calls of its step have ended.

    `kind` and `message` are the turn's failure; the session goes on with what comes next.
    """

    code = "stop_turn"

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        """A short stable word."""
        self.message = message

"""What each script is asked with: keys and arguments from typed records. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from changeover_shared._events import Event, SessionDeleted
from changeover_shared._identifiers import id_time_ms
from changeover_shared._policies import Wish
from changeover_shared._settings import Settings
from changeover_shared._store.keys import Keys, LimitKind, PartitionKeys, ScheduleKeys, Slot
from changeover_shared._store.permits import counted_in
from changeover_shared._store.records import (
    Asked,
    Bucket,
    Caps,
    Commit,
    Crowd,
    Head,
    Lease,
    Memory,
    Permit,
    Submit,
)
from changeover_shared._store.scripts import Value
from changeover_shared._units import milliseconds
from changeover_shared._words import GiveUp

UNABLE_BACKOFF_MS = 5_000
"""How long a session that a worker cannot run is not offered again."""

JSON_GROWTH = 6
"""How much longer JSON may write a text: a control character of one byte is six. The text itself is
measured by the client; this bounds what a script is given."""

MESSAGE_ENVELOPE = 64 * 1024
"""What a message's JSON may add to its text: attachments, metadata."""

_LEASES = ("leases", "owners", "stalls", "alerts")
_PLACED = ("timers", "vt", "waiting")
"""What placing a session needs beside its ready sets and its lease."""
_SUBMIT_SESSION = (
    "head",
    "work",
    "inbox",
    "receipts",
    "settled",
    "journal",
    "checkpoint",
    "transcript",
    "turns",
)
_CONTROL_SESSION = ("head", "work", "inbox", "receipts", "settled", "journal")
_COMMIT_SESSION = _SUBMIT_SESSION
_CLAIM_SESSION = ("head", "work", "journal", "checkpoint", "inbox")

Keyed = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Request:
    """One script call in one slot, without what the fleet adds to it."""

    name: str
    partition: Slot
    keys: Keyed
    args: Mapping[str, Value]
    each: Sequence[Keyed] = ()
    lists: Mapping[str, Sequence[Sequence[Value]]] | None = None


def _named(partition: PartitionKeys, names: Sequence[str]) -> dict[str, str]:
    return {name: partition.named(name) for name in names}


def _of_session(partition: PartitionKeys, session_id: str, names: Sequence[str]) -> dict[str, str]:
    return {name: partition.session(session_id, name) for name in names}


def _ready(partition: PartitionKeys, route: str) -> dict[str, str]:
    return {"ready": partition.ready(route), "solo": partition.solo(route)}


def _record(event: Event) -> tuple[str, str, str, str, str]:
    """An event as the scripts' lists take it."""
    return (
        event.type,
        event.submission_id or "",
        event.turn_id or "",
        event.step_id or "",
        event.body(),
    )


def submit(
    keys: Keys,
    settings: Settings,
    asked: Submit,
    *,
    route: str,
    not_after_ms: int,
    digest: str = "",
    after: str = "",
    defaults: Mapping[str, Wish] | None = None,
) -> Request:
    """Accept one submission; `route` is the session's own if it is known, else the asked one.

    `digest` is what its receipt holds, if that is not the digest as it was asked.

    `after` names an earlier submission of the session that must have been accepted first.
    `defaults` are what agents want of submissions that name no policy.
    """
    partition = keys.of(asked.session_id)
    id_time = id_time_ms(asked.submission_id)
    args: dict[str, Value] = {
        "not_after": not_after_ms,
        "session": asked.session_id,
        "id": asked.submission_id,
        "after": after,
        "id_time": "" if id_time is None else id_time,
        "digest": digest or asked.digest,
        "class": asked.cls,
        "policy": asked.policy,
        "key": asked.key,
        "target": asked.target,
        "body": asked.body,
        "due": asked.due_ms,
        "delay": asked.delay_ms,
        "quiet": asked.quiet_ms,
        "max_wait": asked.max_wait_ms,
        "priority": asked.priority,
        "may_create": int(asked.may_create),
        "route": route,
        "agent": asked.create.agent,
        "tenant": asked.create.tenant,
        "context": asked.create.context,
        "parent": asked.create.parent,
        "kind": asked.event.type if asked.event else "",
        "detail": asked.event.body() if asked.event else "",
        "max_depth": settings.max_inbox,
        "max_bytes": settings.max_inbox_bytes,
        "max_size": settings.max_message * JSON_GROWTH + MESSAGE_ENVELOPE,
        "window": milliseconds(settings.dedup_window),
    }
    return Request(
        "submit",
        partition,
        _of_session(partition, asked.session_id, _SUBMIT_SESSION)
        | _named(partition, ("leases", "owners", "alerts", *_PLACED, "sessions"))
        | _ready(partition, route),
        args,
        lists={"defaults": _defaults(defaults or {}) if not asked.policy else ()},
    )


def _defaults(wishes: Mapping[str, Wish]) -> list[tuple[Value, ...]]:
    return [
        (agent, wish.policy, wish.key, wish.quiet_ms, wish.max_wait_ms)
        for agent, wish in wishes.items()
    ]


def control(
    keys: Keys, session_id: str, *, request_id: str, target: str, route: str, not_after_ms: int
) -> Request:
    """Cancel a waiting submission."""
    partition = keys.of(session_id)
    return Request(
        "control",
        partition,
        _of_session(partition, session_id, _CONTROL_SESSION)
        | _named(partition, ("leases", "owners", *_PLACED))
        | _ready(partition, route),
        {
            "not_after": not_after_ms,
            "session": session_id,
            "route": route,
            "id": request_id,
            "target": target,
        },
    )


def peek(
    partition: PartitionKeys,
    routes: Sequence[str],
    *,
    window: int,
    max_ttl_ms: int,
    solo: bool,
    sums: bool = False,
) -> Request:
    """Look at a partition's indexes, and with `sums` at how many submissions wait."""
    ready = partition.solo if solo else partition.ready
    return Request(
        "peek",
        partition,
        _named(partition, ("leases", "timers", "waiting")),
        {"window": window, "max_ttl": max_ttl_ms, "sums": int(sums)},
        each=[{"ready": ready(route)} for route in routes],
        lists={"routes": [(route,) for route in routes]},
    )


def reap(
    partition: PartitionKeys, routed: Sequence[tuple[str, str]], *, max_ttl_ms: int
) -> Request:
    """Place sessions, each given with its route."""
    return Request(
        "reap",
        partition,
        _named(partition, (*_LEASES, *_PLACED)),
        {"max_ttl": max_ttl_ms},
        each=[
            _of_session(partition, session_id, ("head", "work")) | _ready(partition, route)
            for session_id, route in routed
        ],
        lists={"sessions": routed},
    )


def claim(
    partition: PartitionKeys,
    route: str,
    ids: Sequence[str],
    *,
    incarnation: str,
    nonce: str,
    ttl_ms: int,
    max_step_ms: int,
    solo: bool,
    max_attempts: int,
    not_after_ms: int,
    no_progress_ms: int = 0,
) -> Request:
    """Grant named sessions to one incarnation."""
    return Request(
        "claim",
        partition,
        _named(partition, (*_LEASES, *_PLACED, "quarantine")) | _ready(partition, route),
        {
            "not_after": not_after_ms,
            "route": route,
            "incarnation": incarnation,
            "nonce": nonce,
            "ttl": ttl_ms,
            "max_step": max_step_ms,
            "is_solo": int(solo),
            "max_attempts": max_attempts,
            "no_progress": no_progress_ms,
        },
        each=[_of_session(partition, session_id, _CLAIM_SESSION) for session_id in ids],
        lists={"sessions": [(session_id,) for session_id in ids]},
    )


def renew(partition: PartitionKeys, leases: Sequence[Lease], *, ttl_ms: int) -> Request:
    """Extend leases of one partition."""
    return Request(
        "renew",
        partition,
        _named(partition, _LEASES),
        {"ttl": ttl_ms},
        lists={"held": [(lease.session_id, lease.token) for lease in leases]},
    )


def append(
    keys: Keys, lease: Lease, *, batch_no: int, events: Sequence[Event], cap: int
) -> Request:
    """Add events under the lease."""
    partition = keys.of(lease.session_id)
    return Request(
        "append",
        partition,
        _of_session(partition, lease.session_id, ("head", "work", "journal"))
        | _named(partition, ("leases", "owners")),
        {"session": lease.session_id, "lease": lease.token, "batch": batch_no, "cap": cap},
        lists={"events": [_record(event) for event in events]},
    )


def only_settles(asked: Commit) -> bool:
    """Whether a commit ends its turn without an answer: it frees more than it adds, so it passes
    also when memory is full."""
    adds = asked.items or asked.context or asked.waits or asked.outbox
    return bool(asked.end) and not adds


def commit(keys: Keys, lease: Lease, asked: Commit, *, no_progress_ms: int = 0) -> Request:
    """Change everything that one step changes."""
    session_id = lease.session_id
    partition = keys.of(session_id)
    before = max(asked.context_epoch - 1, 0)
    return Request(
        "settle" if only_settles(asked) else "commit",
        partition,
        _of_session(partition, session_id, _COMMIT_SESSION)
        | _named(partition, (*_LEASES, *_PLACED, "outbox", "quarantine"))
        | _ready(partition, lease.route)
        | {
            "context_old": partition.context(session_id, before),
            "context_new": partition.context(session_id, asked.context_epoch),
        },
        {
            "session": session_id,
            "lease": lease.token,
            "commit_id": asked.commit_id,
            "rev": asked.rev,
            "turn": asked.turn,
            "kind": asked.kind,
            "finish": asked.end,
            "next": asked.next,
            "progress": int(asked.progress),
            "state": asked.checkpoint,
            "record": asked.turn_record,
            "prefix": asked.context,
            "prefix_epoch": asked.context_epoch,
            "keep_from": asked.keep_from,
            "route": lease.route,
            "max_step": asked.max_step_ms,
            "no_progress": no_progress_ms,
            "quantum": int(asked.quantum_left),
        },
        lists={
            "take": [(n,) for n in asked.take],
            "consume": asked.consume,
            "closes": [(wait,) for wait in asked.closes],
            "opens": [(wait.wait_id, wait.kind, wait.deadline_ms) for wait in asked.waits],
            "items": [(item,) for item in asked.items],
            "events": [_record(event) for event in asked.events],
            "drops": [(seq,) for seq in asked.drop_seqs],
            "rows": [(row.row_id, row.session_id, row.body) for row in asked.outbox],
        },
    )


def give_up(keys: Keys, lease: Lease, reason: GiveUp) -> Request:
    """Give a session up outside a commit."""
    session_id = lease.session_id
    partition = keys.of(session_id)
    return Request(
        "give_up",
        partition,
        _of_session(partition, session_id, ("head", "work"))
        | _named(partition, (*_LEASES, *_PLACED))
        | _ready(partition, lease.route),
        {
            "session": session_id,
            "lease": lease.token,
            "reason": reason,
            "backoff": UNABLE_BACKOFF_MS,
        },
    )


def evict(partition: PartitionKeys, held: Sequence[tuple[str, str]], *, why: str = "") -> Request:
    """End leases, given as (session, lease string); `why` is what is known of their holder's
    death."""
    return Request(
        "evict",
        partition,
        _named(partition, ("owners", "leases")),
        {"why": json.dumps(why) if why else ""},
        each=[_of_session(partition, session_id, ("head",)) for session_id, _ in held],
        lists={"held": held},
    )


def quarantine(
    keys: Keys, head: Head, session_id: str, *, event: Event, not_after_ms: int
) -> Request:
    """Stop a session that `head` shows."""
    partition = keys.of(session_id)
    return Request(
        "quarantine",
        partition,
        _of_session(partition, session_id, ("head", "work", "journal"))
        | _named(partition, (*_LEASES, *_PLACED, "quarantine"))
        | _ready(partition, head.route),
        {
            "not_after": not_after_ms,
            "session": session_id,
            "route": head.route,
            "number": head.quarantine_no + 1,
            "detail": event.body(),
        },
    )


def redrive(
    keys: Keys,
    head: Head,
    session_id: str,
    *,
    skip: int,
    event: Event,
    record: str,
    not_after_ms: int,
) -> Request:
    """Let a quarantined session that `head` shows go on, without the input at position `skip`."""
    asked = _end_of_quarantine("redrive", keys, head, session_id, event, record, not_after_ms)
    return replace(asked, args={**asked.args, "skip": skip})


def dead_letter(
    keys: Keys,
    head: Head,
    session_id: str,
    *,
    last: int,
    event: Event,
    record: str,
    not_after_ms: int,
) -> Request:
    """Give up what is open, up to the position `last`, in a quarantined session that `head`
    shows."""
    name = "dead_letter"
    asked = _end_of_quarantine(name, keys, head, session_id, event, record, not_after_ms)
    return replace(asked, args={**asked.args, "last": last})


def _end_of_quarantine(
    name: str,
    keys: Keys,
    head: Head,
    session_id: str,
    event: Event,
    record: str,
    not_after_ms: int,
) -> Request:
    partition = keys.of(session_id)
    return Request(
        name,
        partition,
        _of_session(partition, session_id, (*_CONTROL_SESSION, "turns"))
        | _named(partition, ("leases", "owners", *_PLACED, "quarantine"))
        | _ready(partition, head.route),
        {
            "not_after": not_after_ms,
            "session": session_id,
            "route": head.route,
            "number": head.quarantine_no,
            "detail": event.body(),
            "record": record,
        },
    )


def delete(
    keys: Keys,
    head: Head,
    session_id: str,
    *,
    reason: str,
    window_ms: int,
    not_after_ms: int,
    at_seq: int = -1,
) -> Request:
    """End the life of a session that `head` shows."""
    partition = keys.of(session_id)
    epoch = head.context_epoch
    return Request(
        "delete",
        partition,
        _of_session(partition, session_id, _SUBMIT_SESSION)
        | _named(partition, (*_LEASES, *_PLACED, "sessions", "quarantine", "graves"))
        | _ready(partition, head.route)
        | {"context": partition.context(session_id, epoch)},
        {
            "not_after": not_after_ms,
            "session": session_id,
            "life": head.life,
            "at_seq": at_seq,
            "route": head.route,
            "prefix_epoch": epoch,
            "detail": SessionDeleted(reason=reason).body(),
            "window": window_ms,
        },
    )


def reroute(
    keys: Keys, session_id: str, *, from_route: str, to_route: str, not_after_ms: int
) -> Request:
    """Let a session wait elsewhere."""
    partition = keys.of(session_id)
    return Request(
        "reroute",
        partition,
        _of_session(partition, session_id, ("head", "work"))
        | _named(partition, (*_LEASES, *_PLACED))
        | {
            "old_ready": partition.ready(from_route),
            "old_solo": partition.solo(from_route),
        }
        | _ready(partition, to_route),
        {"not_after": not_after_ms, "session": session_id, "from": from_route, "to": to_route},
    )


def defer(keys: Keys, session_id: str, *, route: str, span_ms: int, reason: str = "") -> Request:
    """Keep a ready session from being offered for a while; `reason` is what is at its limit."""
    partition = keys.of(session_id)
    return Request(
        "defer",
        partition,
        _of_session(partition, session_id, ("head", "work"))
        | _named(partition, ("leases", "owners", *_PLACED))
        | _ready(partition, route),
        {"session": session_id, "route": route, "span": span_ms, "reason": reason},
    )


def trim(keys: Keys, session_id: str, *, events: int, records: int, items_from: int = 0) -> Request:
    """Take from a session what retention does not keep."""
    partition = keys.of(session_id)
    return Request(
        "trim",
        partition,
        _of_session(partition, session_id, ("head", "journal", "transcript", "turns")),
        {"session": session_id, "events": events, "records": records, "items_from": items_from},
    )


def purge(
    partition: PartitionKeys, session_ids: Sequence[str], *, window_ms: int, most: int
) -> Request:
    """Forget settled receipts and tombstones that the window has passed by."""
    return Request(
        "purge",
        partition,
        _named(partition, ("graves",)),
        {"window": window_ms, "most": most},
        each=[
            _of_session(partition, one, ("head", "receipts", "settled", "journal"))
            for one in session_ids
        ],
        lists={"sessions": [(one,) for one in session_ids]},
    )


def pressure(partition: PartitionKeys, memory: Memory | None, *, span_ms: int) -> Request:
    """Say for `span_ms` that memory is short; None: it is not."""
    used, limit = (memory.used, memory.limit) if memory else (0, 0)
    return Request("pressure", partition, {}, {"used": used, "limit": limit, "span": span_ms})


def full(partition: PartitionKeys, crowded: Sequence[Crowd], *, span_ms: int) -> Request:
    """Say for `span_ms` whose inboxes are full, and that nobody else's are."""
    told = [(one.whose, one.depth, one.limit) for one in crowded]
    return Request("full", partition, {}, {"span": span_ms}, lists={"crowded": told})


def recount(partition: PartitionKeys, session_ids: Sequence[str], *, count: int) -> Request:
    """Count what waits in sessions, in the count of that number: a new one begins with nothing."""
    return Request(
        "recount",
        partition,
        _named(partition, ("waiting",)),
        {"count": count},
        each=[_of_session(partition, one, ("head", "work")) for one in session_ids],
        lists={"sessions": [(one,) for one in session_ids]},
    )


def pause(partition: PartitionKeys, queue: str, said: str) -> Request:
    """Grant nothing more of a queue, and say why as JSON; '': grant again."""
    return Request("pause", partition, {}, {"queue": queue, "said": said})


def schedule(
    keys: ScheduleKeys,
    name: str,
    session_id: str,
    *,
    not_after_ms: int,
    seen: str = "",
    version: str = "",
    due_ms: int = 0,
    look_ms: int = 0,
    body: Value = "",
    most: int = 0,
) -> Request:
    """Make a schedule (without `seen`), move one on, or take it away (without a `version`)."""
    return Request(
        "reschedule" if seen else "schedule",
        keys,
        {"by_name": keys.by_name, "due": keys.due},
        {
            "not_after": not_after_ms,
            "name": name,
            "session": session_id,
            "seen": seen,
            "version": version,
            "at": due_ms,
            "look": look_ms,
            "body": body,
            "most": most,
        },
    )


def permit(keys: Keys, asked: Sequence[Permit], caps: Caps, *, span_ms: int) -> Request:
    """Let sessions run for `span_ms`, or for so much longer."""
    sets: dict[str, LimitKind] = {}
    wanted: list[tuple[Value, ...]] = []
    for one in asked:
        mine = counted_in(keys, one, caps)
        sets |= {key: kind for kind, key in mine}
        numbers = [list(sets).index(key) + 1 for _, key in mine]
        first, second = (*numbers, 0, 0)[:2]
        wanted.append((one.session_id, one.nonce, first, second))
    cap = {"tenant": caps.tenant or 0, "queue": caps.queue or 0}
    return Request(
        "permit",
        keys.limits,
        {},
        {"span": span_ms},
        each=[{"permits": key} for key in sets],
        lists={"caps": [(kind, cap[kind]) for kind in sets.values()], "wanted": wanted},
    )


def ask_limit(keys: Keys, asked: Asked, *, span_ms: int, longest_ms: int) -> Request:
    """Let a model be asked, for `span_ms` unless that is extended; or say when it may be."""
    return _limit(
        keys,
        "ask",
        asked.buckets,
        place=asked.place,
        request=asked.request,
        tokens=asked.tokens,
        span=span_ms,
        longest=longest_ms,
    )


def extend_limit(
    keys: Keys, buckets: Sequence[Bucket], requests: Sequence[str], *, span_ms: int
) -> Request:
    """Let requests that were let through run for so much longer."""
    return _limit(keys, "extend", buckets, span=span_ms, requests=requests)


def settle_limit(keys: Keys, asked: Asked, *, tokens: int, took_ms: int) -> Request:
    """Say that a request has ended, and how many tokens it has come to."""
    return _limit(
        keys,
        "settle",
        asked.buckets,
        request=asked.request,
        tokens=tokens - asked.tokens,
        span=took_ms,
    )


def refund_limit(keys: Keys, asked: Asked) -> Request:
    """Say that a request that was let through has not been sent."""
    return _limit(keys, "refund", asked.buckets, request=asked.request, tokens=-asked.tokens)


def leave_limit(keys: Keys, asked: Asked) -> Request:
    """Give a place back."""
    return _limit(keys, "leave", asked.buckets, place=asked.place, tokens=asked.tokens)


def hold_limit(keys: Keys, bucket: Bucket, request: str, *, span_ms: int) -> Request:
    """Let nobody ask a model for a while, for that is what `request` was told."""
    return _limit(keys, "hold", [bucket], request=request, span=span_ms)


def _limit(
    keys: Keys,
    act: str,
    buckets: Sequence[Bucket],
    *,
    requests: Sequence[str] = (),
    **given: Value,
) -> Request:
    nothing: dict[str, Value] = {"place": "", "request": "", "tokens": 0, "span": 0, "longest": 0}
    return Request(
        "limit",
        keys.limits,
        {},
        {"act": act, **nothing, **given},
        each=[keys.limits.model(one.name, one.tenant) for one in buckets],
        lists={
            "caps": [(one.requests, one.tokens, one.concurrency) for one in buckets],
            "requests": [(name,) for name in requests],
        },
    )

"""One request of every script, for what holds for all of them."""

from __future__ import annotations

from typing import cast

from changeover_shared._events import Event
from changeover_shared._settings import Settings
from changeover_shared._store import decode, requests
from changeover_shared._store.keys import Keys, route_of
from changeover_shared._store.records import (
    Asked,
    Bucket,
    Caps,
    Commit,
    Create,
    Crowd,
    Head,
    Lease,
    Memory,
    Permit,
    Submit,
)
from changeover_shared._store.requests import Request
from changeover_shared._words import CommitKind, GiveUp

SESSION = "telegram:42"
ROUTE = route_of("assistant")
LEASE = Lease(SESSION, 1, "w1:aa", "nonce", ROUTE)
SUBMIT = Submit(SESSION, "m1", "d", "turn", "body", Create(ROUTE, "assistant"))
HEAD = cast(Head, decode.head([b"status", b"idle", b"life", b"1", b"route", ROUTE.encode()]))
COMMIT = Commit("k1", 0, "t_1", CommitKind.START, "state", take=(1,))


def every_request(
    keys: Keys, settings: Settings, *, not_after_ms: int, sessions: int = 1
) -> dict[str, Request]:
    """A request of each script; those that take several sessions get so many of them."""
    at = keys.of(SESSION)
    names = (f"{SESSION}:{i}" for i in range(100_000))
    ids = [SESSION, *(one for one in names if keys.of(one) == at and sessions > 1)][:sessions]
    event = Event(type="delta")
    return {
        "init": Request("init", at, {}, {}),
        "raise_epoch": Request("raise_epoch", at, {}, {"expected": "old"}),
        "submit": requests.submit(
            keys, settings, SUBMIT, route=ROUTE, not_after_ms=not_after_ms
        ),
        "control": requests.control(
            keys, SESSION, request_id="c1", target="m1", route=ROUTE, not_after_ms=not_after_ms
        ),
        "peek": requests.peek(at, [ROUTE, "other@1"], window=8, max_ttl_ms=1000, solo=False),
        "reap": requests.reap(at, [(one, ROUTE) for one in ids], max_ttl_ms=1000),
        "claim": requests.claim(
            at, ROUTE, ids, incarnation="w1:aa", nonce="nonce", ttl_ms=1000, max_step_ms=1000,
            solo=False, max_attempts=5, not_after_ms=not_after_ms,
        ),
        "renew": requests.renew(at, [LEASE], ttl_ms=1000),
        "append": requests.append(keys, LEASE, batch_no=1, events=[event], cap=1000),
        "commit": requests.commit(keys, LEASE, COMMIT),
        "give_up": requests.give_up(keys, LEASE, GiveUp.HAND_OFF),
        "evict": requests.evict(at, [(SESSION, LEASE.token)]),
        "quarantine": requests.quarantine(
            keys, HEAD, SESSION, event=Event(type="session_quarantined"),
            not_after_ms=not_after_ms,
        ),
        "redrive": requests.redrive(
            keys, HEAD, SESSION, skip=0, event=Event(type="session_redriven"), record="",
            not_after_ms=not_after_ms,
        ),
        "dead_letter": requests.dead_letter(
            keys, HEAD, SESSION, last=5, event=Event(type="session_redriven"), record="",
            not_after_ms=not_after_ms,
        ),
        "delete": requests.delete(
            keys, HEAD, SESSION, reason="", window_ms=1000, not_after_ms=not_after_ms
        ),
        "reroute": requests.reroute(
            keys, SESSION, from_route=ROUTE, to_route="other@1", not_after_ms=not_after_ms
        ),
        "defer": requests.defer(keys, SESSION, route=ROUTE, span_ms=1000),
        "trim": requests.trim(keys, SESSION, events=1, records=1),
        "purge": requests.purge(at, ids, window_ms=1000, most=10),
        "schedule": requests.schedule(
            keys.schedules, "s1", SESSION, not_after_ms=not_after_ms, version="v1", due_ms=1000,
            look_ms=1000, body="body", most=10,
        ),
        "pressure": requests.pressure(at, Memory(used=9, limit=10), span_ms=1000),
        "full": requests.full(at, [Crowd("acme", 9, 9)], span_ms=1000),
        "recount": requests.recount(at, ids, count=1),
        "permit": requests.permit(
            keys, [Permit(SESSION, "nonce", "assistant", "acme")], Caps(2, 9), span_ms=1000
        ),
        "limit": requests.ask_limit(
            keys,
            Asked("s|t_1|0|", "r1", 9, (Bucket("main", "acme", 5), Bucket("main", "", 9))),
            span_ms=30_000, longest_ms=3_600_000,
        ),
        "pause": requests.pause(at, "assistant", "{}"),
    }  # fmt: skip

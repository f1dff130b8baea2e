"""What the repeat of a script says when the first reply was lost, and what it may change. Pure.

The rule is that a repeat is answered like the first and changes nothing. The tables here are the
exceptions: a script whose repeat has a word of its own, and the one thing that time moves on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from unittest.mock import ANY

from changeover_shared._store.scripts import EXEMPT

Answer = list[Any]
"""A script's word and values as text, without the time."""


def _same(first: Answer) -> Answer:
    return first


def _accepted(first: Answer) -> Answer:
    _, n, seq, turn, status, _, position, agent, route, _ = first
    return ["DUPLICATE", n, seq, turn, status, "", agent, route, position]


def _merged(first: Answer) -> Answer:
    _, seq, turn = first
    return ["DUPLICATE", "0", seq, turn, ANY, "completed", ANY, ANY, ANY]


def _appended(first: Answer) -> Answer:
    return ["ALREADY", *first[1:], first[0]]


REPEATED: Mapping[tuple[str, str], Callable[[Answer], Answer]] = {
    ("submit", "ACCEPTED"): _accepted,
    ("submit", "MERGED"): _merged,
    ("append", "OK"): _appended,
    ("append", "DROPPED"): _appended,
    # The stored values, with the lease as it is now: nothing has touched it in between.
    ("commit", "OK"): lambda first: ["REPLAY", *first[1:]],
    # It is put off already, so there is nothing to put off.
    ("defer", "OK"): lambda first: ["NONE"],
    # What was taken away is not there any more.
    ("schedule", "OK"): lambda first: ["NONE"] if first[1] == "0" else first,
}
"""(script, word of the first answer) -> what its repeat answers; everything else, the same."""

REPEATED_OF_ONE: Mapping[tuple[str, str], Callable[[Answer], Answer]] = {
    # The session is quarantined now, and offered to nobody.
    ("claim", "QUARANTINED"): lambda first: ["NONE"],
    ("purge", "PURGED"): lambda first: ["NONE", "0"],
    # What is left of the receipts that are old enough.
    ("purge", "KEPT"): lambda first: ["KEPT", ANY],
}
"""The same for the answer about one session of a script that is asked about several."""

MAY_CHANGE: Mapping[str, tuple[str, ...]] = {
    "claim": ("leases",),
    "renew": ("leases",),
    "purge": ("receipts", "settled"),
    "pressure": ("meta",),
    "full": ("meta",),
    "limit": ("model:main!running", "model:main!kept"),
    "permit": ("tenant:acme", "tenant:other", "queue:assistant", "queue:triage"),
}
"""Keys whose value the repeat may move on: a lease, a permit, a place, and how long a flag holds,
are counted from the moment of the answer, and a purge goes on where the last one stopped."""

_MANY = {"claim": 1, "permit": 1, "purge": 1, "reap": 1, "renew": 1}
"""Scripts that answer for several sessions, with the place of those answers."""


def expected(name: str, first: Answer) -> Answer:
    """What the repeat must answer, `timeless`."""
    name = EXEMPT.get(name, name)
    told = timeless(name, first)
    if name in _MANY and told[0] == "OK":
        at = _MANY[name]
        each = [REPEATED_OF_ONE.get((name, one[0]), _same)(one) for one in told[at]]
        return [*told[:at], each, *told[at + 1 :]]
    return REPEATED.get((name, told[0]), _same)(told)


def timeless(name: str, answer: Answer) -> Answer:
    """The answer without what depends on the moment at which it was given, hashes as dicts."""
    if name == "reroute" and answer[0] == "HELD":
        return ["HELD"]
    if name == "peek" and answer[0] == "OK":
        return [*answer[:4], *answer[5:]]
    if name == "limit" and answer[0] in ("WAIT", "FAR"):
        return [answer[0], answer[2]]
    if name not in _MANY or answer[0] != "OK":
        return answer
    at = _MANY[name]
    return [*answer[:at], [_one(name, one) for one in answer[at]], *answer[at + 1 :]]


def changed_wrongly(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Keys that a repeat has changed and must not."""
    allowed = MAY_CHANGE.get(name, ())
    return [
        key
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key) and not key.endswith(tuple(":" + a for a in allowed))
    ]


def _one(name: str, answer: Answer) -> Answer:
    match [name, *answer]:
        case ["claim", "GRANTED", fence, _, lapsed, head, work, body, inputs]:
            return ["GRANTED", fence, lapsed, _hash(head), _hash(work), body, inputs]
        case ["claim", "BUSY", _]:
            return ["BUSY"]
        case ["permit", "GRANTED", _]:
            return ["GRANTED"]
        case ["renew", "OK", _, alert, fence]:
            return ["OK", alert, fence]
        case _:
            return answer


def _hash(flat: Sequence[str]) -> dict[str, str]:
    """A hash in which an empty field is as good as none."""
    pairs = zip(flat[::2], flat[1::2], strict=True)
    return {field: value for field, value in pairs if value}

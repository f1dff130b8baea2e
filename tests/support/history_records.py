"""What concurrent workers and producers asked the scripts and were told, as records. Pure.

One record is one call as far as it concerns one session. Times are monotonic seconds, which all
processes of a machine share.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from changeover_shared._events import Event
from changeover_shared._store.records import SubmissionState
from changeover_shared._store.requests import Request

REFUSED = "REFUSED"
"""The word of a record that says what a caller was told in the end, by whatever calls."""
_KEPT = (
    "session", "lease", "commit_id", "rev", "turn", "kind", "finish", "next", "batch", "id",
    "after", "target", "class", "digest", "not_after", "incarnation", "nonce", "reason", "life",
)  # fmt: skip
_MANY = {"claim": 1, "purge": 1, "reap": 1, "renew": 1}
"""Scripts that answer for several sessions, with the place of those answers."""

Line = dict[str, Any]
"""One line of a recorder's file: a call as it was issued, or its answer."""


@dataclass(frozen=True, slots=True)
class Record:
    """One call of one session."""

    who: str
    script: str
    session: str
    given: Mapping[str, Any]
    issued: float
    answered: float = math.inf
    """Infinite when no answer came."""
    answer: tuple[str, ...] = ()
    """The word and its values; empty when nobody knows."""

    @property
    def word(self) -> str:
        return self.answer[0] if self.answer else ""

    @property
    def lease(self) -> str:
        """The lease string that it writes with, or that a claim was granted."""
        if self.script == "claim":
            return "|".join((self.answer[1], self.given["incarnation"], self.given["nonce"]))
        return str(self.given["lease"])


@dataclass(frozen=True)
class Final:
    """What the store holds of one session after everything."""

    fence: int
    rev: int
    seq: int
    journal: tuple[Event, ...] = ()
    receipts: Mapping[str, SubmissionState] = field(default_factory=dict)
    first_seq: int = 1
    epoch: int = 1
    """How many histories its server has had: above 1, one of them may have been forgotten."""


def asks(request: Request) -> list[tuple[str, dict[str, Any]]]:
    """A request as (session, what was asked) pairs."""
    given: dict[str, Any] = {name: request.args[name] for name in _KEPT if name in request.args}
    lists = request.lists or {}
    if "sessions" in lists:
        return [(str(one[0]), given) for one in lists["sessions"]]
    if "held" in lists:
        return [(str(session), {**given, "lease": token}) for session, token in lists["held"]]
    if "session" not in given:
        return []
    if events := lists.get("events"):
        given["events"] = [event[0] for event in events]
    elif request.args.get("kind") and request.name == "submit":
        given["events"] = [request.args["kind"]]
    if drops := lists.get("drops"):
        given["drops"] = [int(drop[0]) for drop in drops]
    return [(str(given.pop("session")), given)]


def answers(request: Request, reply: Sequence[Any]) -> list[list[str]]:
    """A reply as one answer for each of `asks(request)`."""
    word = _text(reply[0])
    count = len(asks(request))
    if request.name not in _MANY or word != "OK":
        flat = [_text(value) for value in reply if not isinstance(value, list)]
        return [flat] * count
    return [_one(request.name, one) for one in reply[_MANY[request.name]]]


def records_of(lines: Iterable[Line]) -> list[Record]:
    """Join calls with their answers, in the order in which the calls were issued."""
    issued: list[Line] = []
    told: dict[tuple[str, int], Line] = {}
    for line in lines:
        if "asks" in line:
            issued.append(line)
        else:
            told[line["who"], line["no"]] = line
    found = []
    for line in sorted(issued, key=lambda one: float(one["at"])):
        who, no = line["who"], line["no"]
        answer = told.get((who, no))
        for i, (session, given) in enumerate(line["asks"]):
            record = Record(who, line["script"], session, given, line["at"])
            if answer is not None:
                said = tuple(answer["told"][i])
                record = Record(who, line["script"], session, given, line["at"], answer["at"], said)
            found.append(record)
    return found


def read_records(paths: Iterable[Path]) -> list[Record]:
    """The records of several processes; a line that a killed one had not finished is left out."""
    lines: list[Line] = []
    for path in paths:
        whole = path.read_text("utf-8").split("\n")[:-1]
        lines += [json.loads(line) for line in whole]
    return records_of(lines)


def _one(name: str, answer: Sequence[Any]) -> list[str]:
    if name == "claim" and _text(answer[0]) == "GRANTED":
        _, fence, _, lapsed, flat, *_ = answer
        head = dict(zip(map(_text, flat[::2]), map(_text, flat[1::2]), strict=True))
        counted = (head.get("rev") or "0", head.get("seq") or "0")
        return ["GRANTED", _text(fence), *counted, _text(lapsed)]
    return [_text(value) for value in answer if not isinstance(value, list)]


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)

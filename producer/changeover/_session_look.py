"""Which reads tell whether a session is sound, and how their answers are read. No I/O here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from changeover_shared._store import decode
from changeover_shared._store.keys import SESSION_NAMES, PartitionKeys
from changeover_shared._store.soundness import Stored, Stream
from changeover_shared._words import Status

Command = tuple[str | int, ...]

_GONE: Final = ("work", "inbox", "checkpoint", "transcript", "turns")
"""What a deleted session has no more; of the rest, `head` stays until a purge."""
_AGING: Final = ("journal", "receipts", "settled")
"""What a deleted session has for the deduplication window, with a TTL."""
_STREAMS: Final = ("journal", "transcript", "checkpoint")


@dataclass(frozen=True, slots=True)
class Unreadable:
    """What is stored is no record of a session."""

    reason: str


class SessionLook:
    """One session's keys, read twice at the ends: what changed meanwhile is read again."""

    def __init__(self, at: PartitionKeys, session_id: str, *, sizes: bool) -> None:
        self.at = at
        self.session_id = session_id
        self.changing = False
        self._sizes = SESSION_NAMES if sizes else ()
        self.route = ""
        self.epoch = 0
        self.bytes: dict[str, int] = {}
        """Key name -> memory that it takes."""

    def first(self) -> Command:
        """What names the other keys."""
        return ("HMGET", self._key("head"), "route", "context_epoch")

    def named(self, values: Sequence[bytes | None]) -> None:
        """Read the answer to `first`."""
        route, epoch = values
        self.route = (route or b"").decode()
        self.epoch = int(epoch or 0)

    def commands(self) -> list[Command]:
        """Everything that is compared, the head before and after the rest."""
        head, named = ("HGETALL", self._key("head")), self.at.named
        return [
            head,
            ("HGETALL", self._key("work")),
            ("HGET", named("owners"), self.session_id),
            *(("ZSCORE", named(name), self.session_id) for name in ("leases", "timers")),
            ("ZSCORE", self.at.ready(self.route), self.session_id),
            ("ZSCORE", self.at.solo(self.route), self.session_id),
            *(
                ("ZSCORE", named(name), self.session_id)
                for name in ("quarantine", "sessions", "graves")
            ),
            ("XLEN", self._key("inbox")),
            ("HGETALL", self._key("receipts")),
            ("ZCOUNT", self._key("settled"), "-inf", "(+inf"),
            ("EXISTS", self.at.context(self.session_id, self.epoch)),
            *(("XLEN", self._key(name)) for name in _STREAMS),
            *(("XRANGE", self._key(name), "-", "+", "COUNT", 1) for name in _STREAMS),
            *(("XREVRANGE", self._key(name), "+", "-", "COUNT", 1) for name in _STREAMS),
            *(("EXISTS", self._key(name)) for name in _GONE),
            *(("PTTL", self._key(name)) for name in _AGING),
            *(("MEMORY", "USAGE", self._key(name)) for name in self._sizes),
            head,
        ]

    def read(self, values: Sequence[Any]) -> Stored | None:
        """Read the answers to `commands`; None when the session changed meanwhile or is gone.

        Raises `ValueError` or `KeyError` for what no release has written.
        """
        found = iter(values)
        before, after = next(found), values[-1]
        head = decode.head(before)
        if head is None or before != after:
            self.changing = bool(after)
            return None
        if (head.route, head.context_epoch) != (self.route, self.epoch):
            self.changing = True
            return None
        self.changing = False
        work = decode.work(next(found))
        owner = (next(found) or b"").decode()
        lease, timer, ready, solo, quarantined, listed, buried = (next(found) for _ in range(7))
        inbox, receipts, settled, prefix = (next(found) for _ in range(4))
        lengths = [int(next(found)) for _ in _STREAMS]
        firsts = [next(found) for _ in _STREAMS]
        lasts = [next(found) for _ in _STREAMS]
        streams = [
            Stream(length, _number(first), _number(last))
            for length, first, last in zip(lengths, firsts, lasts, strict=True)
        ]
        left = [self._key(name) for name in _GONE if next(found)]
        left += [self._key(name) for name in _AGING if next(found) == -1]
        if head.status is Status.DELETED and prefix:
            left.append(self.at.context(self.session_id, self.epoch))
        self.bytes = {name: int(next(found) or 0) for name in self._sizes}
        told = {
            name.decode(): decode.receipt(name.decode(), value)
            for name, value in decode.pairs(receipts)
            if value
        }
        return Stored(
            session_id=self.session_id,
            head=head,
            work=work,
            owner=owner,
            lease_ms=_score(lease),
            timer_ms=_score(timer),
            ready=ready is not None,
            solo=solo is not None,
            quarantined=quarantined is not None,
            listed=listed is not None,
            buried=buried is not None,
            inbox=int(inbox),
            journal=streams[0],
            transcript=streams[1],
            checkpoint=streams[2],
            has_prefix=bool(prefix) or not self.epoch,
            receipts={name: one for name, one in told.items() if one is not None},
            settled=int(settled),
            left=tuple(left),
        )

    def read_or_not(self, values: Sequence[Any]) -> Stored | Unreadable | None:
        """As `read`, for answers that may hold anything."""
        try:
            return self.read(values)
        except (ValueError, KeyError) as error:
            self.changing = False
            return Unreadable(f"{type(error).__name__}: {error}")

    def _key(self, name: str) -> str:
        return self.at.session(self.session_id, name)


def _number(entries: Sequence[Any]) -> int:
    return decode.number_in(entries[0][0]) if entries else 0


def _score(value: bytes | None) -> int | None:
    return None if value is None else int(float(value))

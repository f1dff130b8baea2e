"""What a walk over a whole fleet adds up to: counts, sizes and what does not agree. No I/O here."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from statistics import median
from typing import Final

from changeover._fleet_health import many
from changeover._index_look import Index
from changeover._session_look import SessionLook, Unreadable
from changeover_shared._server.check import Finding
from changeover_shared._sizes import show_size
from changeover_shared._store.keys import Keys, Owner, queue_of
from changeover_shared._store.soundness import Defect, Stored, defects

NAMED: Final = 5
"""How many examples of one kind are told."""


class Tally:
    """Everything that was seen so far, in little memory."""

    def __init__(self, keys: Keys) -> None:
        self.keys = keys
        self.sessions = 0
        self.routes: set[tuple[int, str]] = set()
        """(partition, route) of every ready set that was seen."""
        self._seen = 0
        self._busy = 0
        self._count: Counter[str] = Counter()
        self._examples: dict[str, list[Finding]] = {}
        self._sizes = array("Q")
        self._bytes = self._journals = 0
        self._largest = (0, "")

    def key(self, key: bytes) -> Owner | None:
        """Count a key; what it belongs to, or None after noting that it belongs to nothing."""
        self._seen += 1
        name = key.decode(errors="replace")
        owner = self.keys.owner_of(name)
        if owner is None:
            self._note("unknown_key", f"{name} belongs to nothing", f"redis-cli UNLINK '{name}'")
        elif owner.kind == "ready" and owner.partition is not None:
            self.routes.add((owner.partition, owner.name.removesuffix("!solo")))
        return owner

    def orphan(self, owner: Owner, key: str) -> None:
        """Note a key of a session that does not exist."""
        text = f"{key} is left of session {owner.session_id}, which does not exist"
        self._note("orphan_key", text, f"redis-cli UNLINK '{key}'")

    def entry(self, index: Index, member: str, reason: str) -> None:
        """Note an index entry that should not be there."""
        text = f"{index.key} names {member}, {reason}"
        self._note("wrong_entry", text, f"redis-cli {index.remove} '{index.key}' '{member}'")

    def session(self, look: SessionLook, stored: Stored | Unreadable, now_ms: int) -> None:
        """Count a session and note what does not agree."""
        self.sessions += 1
        if isinstance(stored, Unreadable):
            text = f"{look.session_id} cannot be read: {stored.reason}"
            self._note("unreadable", text, "restore it from a backup, or delete its keys")
            return
        for defect in defects(stored, now_ms):
            text = f"{stored.session_id} {defect.text}"
            self._note(defect.code, text, self._remedy(stored, defect, now_ms))
        size = sum(look.bytes.values())
        self._sizes.append(size)
        self._bytes += size
        self._journals += look.bytes.get("journal", 0)
        self._largest = max(self._largest, (size, stored.session_id))

    def busy(self) -> None:
        """Count a session that never held still."""
        self.sessions += 1
        self._busy += 1

    def findings(self) -> Iterator[Finding]:
        """What was seen, then what is wrong, each kind with a few examples."""
        yield self._summary()
        for code, examples in self._examples.items():
            yield from examples
            more = self._count[code] - len(examples)
            if more:
                yield Finding(level="fail", code=code, text=f"and {more} more like that")

    def _summary(self) -> Finding:
        parts = [many(self.sessions, "session")]
        if self._bytes:
            size, name = self._largest
            middle = show_size(round(median(self._sizes)))
            parts += [
                f"{middle} median, {show_size(size)} largest ({name})",
                f"journals {self._journals / self._bytes:.0%} of {show_size(self._bytes)}",
            ]
        parts.append(many(self._seen, "key"))
        if self._busy:
            parts.append(f"{self._busy} too busy to be compared")
        if not self._examples:
            parts.append("no key without an owner, every index agrees")
        return Finding(level="ok", code="deep", text=" · ".join(parts))

    def _note(self, code: str, text: str, remedy: str) -> None:
        self._count[code] += 1
        examples = self._examples.setdefault(code, [])
        if len(examples) < NAMED:
            examples.append(Finding(level="fail", code=code, text=text, remedy=remedy))

    def _remedy(self, stored: Stored, defect: Defect, now_ms: int) -> str:
        session, head = stored.session_id, stored.head
        at = self.keys.of(session)
        match defect.code:
            case "wrong_index" | "wrong_status":
                return self._placing(stored, now_ms)
            case "wrong_quarantine":
                key, then = at.named("quarantine"), f"{head.at_ms} "
                command, when = ("ZREM", "") if stored.quarantined else ("ZADD", then)
                return f"redis-cli {command} '{key}' {when}'{session}'"
            case "not_listed" if not stored.listed and head.status != "deleted":
                return f"redis-cli ZADD '{at.named('sessions')}' {head.created_ms} '{session}'"
            case "not_listed" if stored.listed:
                return f"redis-cli ZREM '{at.named('sessions')}' '{session}'"
            case "not_listed":
                when = head.raw.get("deleted_ms", "0")
                return f"redis-cli ZADD '{at.named('graves')}' {when} '{session}'"
            case "left_behind":
                return "redis-cli UNLINK " + " ".join(f"'{key}'" for key in stored.left)
            case "lost_body" | "wrong_receipt":
                return f"changeover show {session} --inbox; what is lost must be sent again"
            case "damaged_stream":
                return f"changeover show {session}; restore a backup if more is needed"

    def _placing(self, stored: Stored, now_ms: int) -> str:
        """What puts a session into the index that it belongs into."""
        session, at = stored.session_id, self.keys.of(stored.session_id)
        places = {
            at.named("leases"): stored.lease_ms is not None,
            at.named("timers"): stored.timer_ms is not None,
            at.ready(stored.head.route): stored.ready,
            at.solo(stored.head.route): stored.solo,
        }
        stray = [key for key, found in places.items() if found]
        if stored.head.status not in ("closed", "deleted"):
            stray = [at.named("leases")] if stored.lease_ms is not None and not stored.owner else []
        if stray:
            return "; ".join(f"redis-cli ZREM '{key}' '{session}'" for key in stray)
        if stored.owner and (stored.lease_ms or 0) > now_ms:
            return "nothing: the next step of its holder indexes it anew"
        return f'SyncOperator().reroute("{session}", "{queue_of(stored.head.route)}")'


def wrong(stored: Stored | Unreadable | None, now_ms: int) -> bool:
    """Whether a session does not agree with itself, as it was read once."""
    return isinstance(stored, Stored) and next(defects(stored, now_ms), None) is not None

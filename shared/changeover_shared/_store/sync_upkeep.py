# Written by tools/generate_sync.py from upkeep.py: change that file instead.
"""What becomes of sessions besides being run: ended for good, moved, forgotten.

As with submissions, a refusal counts only once no earlier attempt of the same request can run.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial

from changeover_shared._errors import SessionHeld
from changeover_shared._results import Pause
from changeover_shared._settings import Settings
from changeover_shared._store import decode, requests
from changeover_shared._store.keys import route_of
from changeover_shared._store.payloads import key_id_of
from changeover_shared._store.records import Standing
from changeover_shared._store.sync_fleet import SyncFleet
from changeover_shared._units import milliseconds
from changeover_shared._words import Status

PURGED_AT_ONCE = 100
RECEIPTS_AT_ONCE = 500
PAGE = 200
STANDINGS_AT_ONCE = 1000
BODIES = ("inbox", "checkpoint", "transcript", "journal", "turns")
"""What of a session is a stream of payloads."""


class SyncUpkeep:
    """Ends, moves and forgets sessions. Every call may be repeated."""

    def __init__(self, fleet: SyncFleet) -> None:
        self._fleet = fleet
        self._settings: Settings = fleet.settings

    def delete(
        self, session_id: str, *, reason: str = "", at_seq: int = -1, timeout_s: float = 5.0
    ) -> bool:
        """End a session for good: what is open is cancelled, its holder is refused from now on.

        With `at_seq`, only while that is its newest event and nothing is open. False when there
        is none, it was deleted before, or it has moved on. Raises `StoreUnavailable`.
        """
        deadline = time.monotonic() + timeout_s
        life = 0
        while True:
            head = self._fleet.read_head(session_id)
            if head is None or (head.status is Status.DELETED and not life):
                return False
            if life and head.life != life:
                return True
            life = head.life
            ask = partial(
                requests.delete,
                self._fleet.keys,
                head,
                session_id,
                reason=reason,
                at_seq=at_seq,
                window_ms=milliseconds(self._settings.dedup_window),
            )
            reply = self._fleet.final(ask, granted=("OK",), deadline=deadline)
            match reply[0]:
                case "OK":
                    return True
                case "MOVED":
                    return False
                case "ROUTE" | "CONTEXT" | "STALE":
                    continue
                case _:
                    raise AssertionError(f"delete answered {reply!r}")

    def reroute(self, session_id: str, queue: str, *, timeout_s: float = 5.0) -> bool:
        """Let a session wait in another queue; False when there is none that could.

        Raises `SessionHeld` while a worker holds it, and `StoreUnavailable`.
        """
        deadline = time.monotonic() + timeout_s
        to_route = route_of(queue)
        while True:
            head = self._fleet.read_head(session_id)
            if head is None:
                return False
            ask = partial(
                requests.reroute,
                self._fleet.keys,
                session_id,
                from_route=head.route,
                to_route=to_route,
            )
            reply = self._fleet.final(ask, granted=("OK",), deadline=deadline)
            match reply[0]:
                case "OK":
                    if reply[1] == b"ready":
                        partition = self._fleet.keys.of(session_id).partition
                        self._fleet.ring([(to_route, partition)])
                    return True
                case "STALE":
                    return False
                case "HELD":
                    raise SessionHeld(session_id=session_id, remaining_ms=int(reply[1]))
                case "ROUTE":
                    continue
                case _:
                    raise AssertionError(f"reroute answered {reply!r}")

    def pause(self, queue: str, said: str) -> None:
        """Grant nothing more of a queue, and say why as JSON; '': grant again, and wake workers.

        Every partition is told, one after the other. Raises `StoreUnavailable` when one could not
        be: the others know; may be repeated.
        """
        keys = self._fleet.keys
        asked = [requests.pause(at, queue, said) for at in keys.all]
        for reply in self._fleet.call_all(asked):
            if isinstance(reply, Exception):
                raise reply
        if not said:
            self._fleet.ring([(route_of(queue), at.partition) for at in keys.all])

    def paused(self) -> tuple[Mapping[str, Pause], ...]:
        """Per partition, the queues that are paused there."""
        metas = [("HGETALL", at.named("meta")) for at in self._fleet.keys.all]
        return tuple(decode.paused(flat) for flat in self._fleet.executor.commands(metas))

    def standings(self, partition: int, *, skip: int) -> tuple[Standing, ...]:
        """Where up to `STANDINGS_AT_ONCE` sessions of a partition stand, by creation."""
        at, commands = self._fleet.keys.all[partition], self._fleet.executor.commands
        last = skip + STANDINGS_AT_ONCE - 1
        (named,) = commands([("ZRANGE", at.named("sessions"), skip, last)])
        asked = ("status", "route", "at_ms", "deferred", "not_before")
        heads = [("HMGET", at.session(one.decode(), "head"), *asked) for one in named]
        return tuple(map(decode.standing, commands(heads))) if heads else ()

    def purge(self, partition: int, session_ids: Sequence[str]) -> tuple[int, int]:
        """Forget tombstones and settled receipts that the deduplication window has passed by:
        how many of each. Raises `StoreUnavailable`."""
        tombstones = receipts = 0
        left = list(session_ids)
        while left:
            some, left = left[:PURGED_AT_ONCE], left[PURGED_AT_ONCE:]
            reply = self._fleet.call(
                requests.purge(
                    self._fleet.keys.all[partition],
                    some,
                    window_ms=milliseconds(self._settings.dedup_window),
                    most=RECEIPTS_AT_ONCE,
                )
            )
            for session_id, (word, count) in zip(some, reply[1], strict=True):
                tombstones += word == b"PURGED"
                receipts += int(count)
                if int(count) == RECEIPTS_AT_ONCE:
                    left.append(session_id)
        return tombstones, receipts

    def sums(self, partition: int) -> dict[str, int]:
        """How many submissions a partition says wait, of `EVERYBODY` and of each tenant."""
        key = self._fleet.keys.all[partition].named("waiting")
        return decode.sums(self._fleet.executor.command("HGETALL", key))

    def recount(self, partition: int) -> None:
        """Count anew what waits in the sessions of a partition. Raises `StoreUnavailable`; may be
        repeated."""
        at, command = self._fleet.keys.all[partition], self._fleet.executor.command
        count = int(command("HGET", at.named("waiting"), "!") or 0) + 1
        self._fleet.call(requests.recount(at, (), count=count))
        start = 0
        while named := command("ZRANGE", at.named("sessions"), start, start + PAGE - 1):
            ids = [one.decode() for one in named]
            self._fleet.call(requests.recount(at, ids, count=count))
            start += PAGE

    def trim(self, session_id: str, *, items_from: int) -> None:
        """Take from a session what the fleet's limits do not keep, and its transcript before an
        item; the newest turn, and what the context needs, stay whole. Raises `StoreUnavailable`."""
        self._fleet.call(
            requests.trim(
                self._fleet.keys,
                session_id,
                events=self._settings.journal_events,
                records=self._settings.turns_kept,
                items_from=items_from,
            )
        )

    def forget_routes(self, partition: int, but: Collection[str]) -> None:
        """Forget the fair order of routes in which no session of a partition waits any more.

        A session that comes to one meanwhile begins its order anew, which is what it would do.
        """
        key = self._fleet.keys.all[partition].named("vt")
        found = self._fleet.executor.command("HKEYS", key)
        gone = [field for field in found if field.split(b":")[1].decode() not in but]
        if gone:
            self._fleet.executor.command("HDEL", key, *gone)

    def forget_workers(self, *, silent_ms: int) -> None:
        """Take incarnations that have said nothing for so long out of the registry, also those of
        another release."""
        keys = self._fleet.keys
        flat = self._fleet.executor.command("HGETALL", keys.workers)
        now_ms = self._fleet.clock.now_ms()
        gone = [
            incarnation
            for incarnation, said in decode.pairs(flat)
            if decode.renewed_at_ms(said) + silent_ms < now_ms
        ]
        if gone:
            self._fleet.executor.command("HDEL", keys.workers, *gone)

    def graves(self, partition: int, *, limit: int = 1000) -> tuple[str, ...]:
        """The sessions of a partition that were deleted, oldest first; all with limit 0."""
        key = self._fleet.keys.all[partition].named("graves")
        found = self._fleet.executor.command("ZRANGE", key, 0, limit - 1)
        return tuple(one.decode() for one in found)

    def payload_keys(self, session_id: str) -> Counter[str]:
        """How many stored values of a session each payload key has encrypted; '' counts what is
        not encrypted. Raises `StoreUnavailable`."""
        at, command = self._fleet.keys.of(session_id), self._fleet.executor.command
        head = at.session(session_id, "head")
        *fields, epoch = command("HMGET", head, "context", "ctl_body", "context_epoch")
        prefix = command("GET", at.context(session_id, int(epoch or 0)))
        found = Counter(_needed([*fields, prefix]))
        for name in BODIES:
            after = "-"
            while page := decode.entries(
                command("XRANGE", at.session(session_id, name), after, "+", "COUNT", PAGE)
            ):
                found.update(_needed([fields[b"body"] for _, fields in page]))
                after = f"({page[-1][0].decode()}"
        return found

    def secret_key(self) -> str:
        """The payload key without which no process joins the fleet; '' when it needs none."""
        stored = self._fleet.executor.command("GET", self._fleet.keys.secret)
        return "" if stored is None else key_id_of(stored)


def _needed(values: Sequence[bytes | None]) -> Iterator[str]:
    """The key of each value that says something."""
    return (key_id_of(value) for value in values if value and value != b"{}")

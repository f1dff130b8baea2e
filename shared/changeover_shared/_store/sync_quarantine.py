# Written by tools/generate_sync.py from quarantine.py: change that file instead.
"""Sessions that are stopped until an operator acts: stopped, let go on, given up.

As with submissions, a refusal counts only once no earlier attempt of the same request can run.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from changeover_shared._errors import Closed, Deleted, UnknownSession
from changeover_shared._events import SessionQuarantined, SessionRedriven
from changeover_shared._store import requests
from changeover_shared._store.records import GivenUp, Head
from changeover_shared._store.sync_fleet import SyncFleet
from changeover_shared._words import Status


class SyncQuarantine:
    """Stops sessions and lets them go on. Every call may be repeated."""

    def __init__(self, fleet: SyncFleet) -> None:
        self._fleet = fleet

    def stop(self, session_id: str, *, reason: str, by: str = "", timeout_s: float = 5.0) -> bool:
        """Stop a session now, whoever holds it; False when it is stopped already.

        Raises `UnknownSession`, `Closed`, `Deleted`, `StoreUnavailable`.
        """
        deadline = time.monotonic() + timeout_s
        number = 0
        while True:
            head = self._fleet.read_head(session_id)
            if head is None:
                raise UnknownSession(session_id=session_id)
            if head.status is Status.CLOSED:
                raise Closed(session_id=session_id)
            if head.status is Status.DELETED:
                raise Deleted(session_id=session_id)
            if head.status is Status.QUARANTINED and not number:
                return False
            if number and head.quarantine_no >= number:
                return True
            number = head.quarantine_no + 1
            event = SessionQuarantined(
                attempts=head.attempts, cause="operator", error=reason, by=by
            )
            ask = partial(requests.quarantine, self._fleet.keys, head, session_id, event=event)
            reply = self._fleet.final(ask, granted=("OK",), deadline=deadline)
            match reply[0]:
                case "OK":
                    return True
                case "ROUTE" | "STALE":
                    continue
                case _:
                    raise AssertionError(f"quarantine answered {reply!r}")

    def redrive(
        self,
        session_id: str,
        head: Head,
        given_up: GivenUp,
        *,
        by: str = "",
        timeout_s: float = 5.0,
    ) -> Status | None:
        """Let a session that `head` shows as quarantined try again; its status then.

        None when it is not in that quarantine any more, or not as `head` and `given_up` say: look
        again. Raises `StoreUnavailable`.
        """
        ask = partial(
            requests.redrive,
            self._fleet.keys,
            head,
            session_id,
            skip=given_up.skip,
            event=_redriven(given_up, by),
            record=given_up.record,
        )
        return self._let_go(ask, session_id, head, timeout_s)

    def dead_letter(
        self,
        session_id: str,
        head: Head,
        given_up: GivenUp,
        *,
        by: str = "",
        timeout_s: float = 5.0,
    ) -> Status | None:
        """Give up what `given_up` names in a session that `head` shows as quarantined; its status
        then. What came since goes on.

        None when it is not in that quarantine any more, or not where `head` says: look again.
        Raises `StoreUnavailable`.
        """
        ask = partial(
            requests.dead_letter,
            self._fleet.keys,
            head,
            session_id,
            last=given_up.last,
            event=_redriven(given_up, by),
            record=given_up.record,
        )
        return self._let_go(ask, session_id, head, timeout_s)

    def _let_go(self, ask: Any, session_id: str, head: Head, timeout_s: float) -> Status | None:
        reply = self._until(ask, timeout_s)
        if reply[0] != "OK":
            return None
        status = Status(reply[1].decode())
        if status is Status.READY:
            partition = self._fleet.keys.of(session_id).partition
            self._fleet.ring([(head.route, partition)])
        return status

    def _until(self, ask: Any, timeout_s: float) -> list[Any]:
        deadline = time.monotonic() + timeout_s
        return self._fleet.final(ask, granted=("OK",), deadline=deadline)


def _redriven(given_up: GivenUp, by: str) -> SessionRedriven:
    return SessionRedriven(by=by, dropped=given_up.submissions, ended_turn=given_up.turn or None)

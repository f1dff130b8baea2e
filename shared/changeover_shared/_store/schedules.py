"""The schedules of a fleet: kept by producers, moved on by the worker that leads the sweep."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from pydantic import ValidationError

from changeover_shared._errors import FormatTooNew, PayloadError, TooManySchedules
from changeover_shared._schedules import Planned
from changeover_shared._store import requests
from changeover_shared._store.fleet import Fleet
from changeover_shared._store.payloads import SessionPayloads, key_id_of
from changeover_shared._store.scripts import Value

MOST: Final = 10_000
"""How many schedules a fleet has at most."""
READ_AT_ONCE: Final = 100
DUE_AT_ONCE: Final = 25
LONGEST_PAUSE_MS: Final = 60_000
"""How long a schedule that cannot be served is left alone at most."""
MOVE_MS: Final = 5_000
"""For how long a request to move a schedule on may be granted."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A schedule as it lies in Redis."""

    name: str
    version: str
    due_ms: int
    session_id: str
    body: bytes
    payloads: SessionPayloads

    def plan(self) -> Planned:
        """What it does. Raises `PayloadError` and, for what a newer one wrote, `FormatTooNew`."""
        try:
            return Planned.model_validate_json(self.payloads.open("schedule", self.body))
        except ValidationError as error:
            what = f"schedule {self.name!r}"
            raise FormatTooNew(what=what, found="of a newer release") from error

    @property
    def seen(self) -> str:
        """What a change of it names."""
        return f"{self.version}|{self.due_ms}"


class Schedules:
    """Keeps schedules. Every call may be repeated."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._keys = fleet.keys.schedules

    async def keep(
        self, name: str, session_id: str, plan: Planned, due_ms: int, *, timeout_s: float = 5.0
    ) -> int:
        """Make a schedule, or make it anew if it does something else: when it is due.

        One that does the same stays as it is. Raises `TooManySchedules`, `NotDurable`,
        `StoreUnavailable`.
        """
        ask = partial(
            requests.schedule,
            self._keys,
            name,
            session_id,
            version=self._fleet.payloads.digest(plan.digest(session_id)),
            due_ms=due_ms,
            look_ms=due_ms,
            body=plan.model_dump_json(),
            most=MOST,
        )
        deadline = time.monotonic() + timeout_s
        reply = await self._fleet.final(ask, granted=("OK",), deadline=deadline)
        if reply[0] == "FULL":
            raise TooManySchedules(count=int(reply[1]), limit=int(reply[2]))
        assert reply[0] == "OK", reply
        return int(reply[1])

    async def drop(self, name: str, *, timeout_s: float = 5.0) -> bool:
        """Take a schedule away; False when there is none. Raises `NotDurable`,
        `StoreUnavailable`."""
        deadline = time.monotonic() + timeout_s
        known = False
        while found := (await self.named([name]))[0]:
            known = True
            ask = partial(requests.schedule, self._keys, name, found.session_id, seen=found.seen)
            reply = await self._fleet.final(ask, granted=("OK",), deadline=deadline)
            # It was moved on, or made anew, in between: that one is meant as well.
            if reply[0] != "STALE":
                return True
        return known

    async def names(self) -> list[str]:
        """All schedules, by name. Raises `StoreUnavailable`."""
        found = await self._fleet.executor.command("HKEYS", self._keys.by_name)
        return sorted(one.decode() for one in found)

    async def named(self, names: Sequence[str]) -> list[Stored | None]:
        """Schedules by their names; None for one that is not there. Raises `StoreUnavailable`."""
        if not names:
            return []
        values = await self._fleet.executor.command("HMGET", self._keys.by_name, *names)
        return [
            None if value is None else self._read(name, value)
            for name, value in zip(names, values, strict=True)
        ]

    async def due(self, now_ms: int) -> list[Stored]:
        """Up to `DUE_AT_ONCE` whose time has come, those that wait longest first.

        Raises `StoreUnavailable`.
        """
        first = ("BYSCORE", "LIMIT", 0, DUE_AT_ONCE)
        found = await self._fleet.executor.command("ZRANGE", self._keys.due, 0, now_ms, *first)
        return [one for one in await self.named([name.decode() for name in found]) if one]

    async def move(self, seen: Stored, due_ms: int, *, look_ms: int | None = None) -> bool:
        """Let a schedule be due later, or be tried again at `look_ms`; False when it is another
        one by now. Raises `StoreUnavailable`."""
        body: Value = ""
        with suppress(PayloadError):
            # Written anew, it is encrypted with the key that encrypts now.
            body = seen.payloads.open("schedule", seen.body)
        request = requests.schedule(
            self._keys,
            seen.name,
            seen.session_id,
            seen=seen.seen,
            version=seen.version,
            due_ms=due_ms,
            look_ms=due_ms if look_ms is None else look_ms,
            body=body,
            not_after_ms=self._fleet.clock.now_ms() + MOVE_MS,
        )
        return bool((await self._fleet.call(request))[0] == "OK")

    async def payload_keys(self) -> dict[str, int]:
        """How many schedules each payload key has encrypted; '' counts those that are not."""
        counts: dict[str, int] = {}
        names = await self.names()
        for start in range(0, len(names), READ_AT_ONCE):
            for one in await self.named(names[start : start + READ_AT_ONCE]):
                if one is not None:
                    key = key_id_of(one.body)
                    counts[key] = counts.get(key, 0) + 1
        return counts

    def _read(self, name: str, value: bytes) -> Stored:
        version, _, session, body = value.split(b"|", 3)
        session_id = session.decode()
        payloads = self._fleet.payloads.of(session_id)
        return Stored(name, version.decode(), due_in(value), session_id, body, payloads)


def due_in(value: bytes) -> int:
    """When a schedule as it is stored is due."""
    return int(value.split(b"|", 2)[1])

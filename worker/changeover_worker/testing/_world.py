"""One fresh store, shared by a scenario, the workers that run it and the checks."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from typing import Any

from changeover_shared._errors import ExtraMissing
from changeover_shared._events import Event
from changeover_shared._items import StepRecord, decode_item
from changeover_shared._settings import Settings
from changeover_shared._store.clock import time_ms
from changeover_shared._store.fleet import Fleet
from changeover_shared._store.keys import PartitionKeys
from changeover_shared._store.lease_store import LeaseStore
from changeover_shared._store.payloads import Payloads
from changeover_shared._store.scripts import Script, Value
from changeover_shared._store.store import Store
from changeover_worker.testing._follower import Follower
from changeover_worker.testing._snapshot import every_key, keys_like
from changeover_worker.testing._tap import TappedExecutor

LONG_AGO_MS = 1
"""The end of a lease that has run out."""
COURTESY_S = 0.05
"""How long a worker's call waits for a scenario that is about to act."""


class World:
    """The store and what has been seen of it from outside."""

    def __init__(self, settings: Settings, url: str | None, server: Any) -> None:
        self.settings = settings
        self._url = url
        self._server = server
        self._executors: list[TappedExecutor] = []
        self._ahead_ms = 0
        self._changed = asyncio.Event()
        self._user_waits = asyncio.Event()
        self.followers: dict[str, Follower] = {}
        self.accepted: list[tuple[str, str, bool]] = []
        """(session, submission, whether it is a control) of everything that was accepted."""
        self.grants: dict[str, list[tuple[int, str]]] = {}
        """(fence, incarnation) of each grant, by session, in order."""
        self.commits: dict[str, int] = {}
        """How many commits each session has accepted."""
        self.on_grant: Callable[[], Awaitable[None]] | None = None
        """Called once, at the next grant, while the new holder waits."""
        self.recorded: set[tuple[str, str, str]] = set()
        """The finished steps of handlers: (session, turn, name)."""
        self.scenario_over = False
        self.store: Store
        self.lease_store: LeaseStore
        self._payloads: Payloads

    async def open(self) -> None:
        """Join the fleet with connections that no tap counts."""
        fleet = await Fleet.join(await self.connect(), self.settings)
        self.store, self.lease_store = Store(fleet), LeaseStore(fleet)
        self._payloads = fleet.payloads

    async def connect(self) -> TappedExecutor:
        """Another process's connections to the store."""
        if self._url is not None:
            executor = await TappedExecutor.connect(self._url)
        else:
            redis = _fakeredis().FakeAsyncRedis
            executor = TappedExecutor.given(
                redis(server=self._server, protocol=2), redis(server=self._server, protocol=2)
            )
        executor.clock.ahead_ms = self._ahead_ms
        self._executors.append(executor)
        return executor

    async def aclose(self) -> None:
        """Delete every key of this world and close its connections."""
        keys = await keys_like(self._own, self._pattern)
        if keys:
            await self._own.commands([("UNLINK", key) for key in keys])
        for executor in self._executors:
            await executor.aclose()

    @property
    def _own(self) -> TappedExecutor:
        return self._executors[0]

    @property
    def _pattern(self) -> str:
        return f"*{self.settings.prefix}:*"

    @property
    def at(self) -> PartitionKeys:
        """The only partition."""
        return self.lease_store.keys.all[0]

    async def contents(self) -> dict[str, Any]:
        """Every key with its value, apart from the bells: they are hints and anybody's to ring."""
        found = await every_key(self._own, self._pattern)
        return {key: value for key, value in found.items() if ":bell}:" not in key}

    # What the tap tells.

    async def turn_of(self) -> None:
        """Let the scenario act first, if it has just been told something."""
        if not self._user_waits.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(COURTESY_S):
                    await self._user_waits.wait()

    async def answered(self, script: Script, args: Sequence[Value], reply: list[Any]) -> None:
        """Take note of grants and commits, and have every follower read on."""
        if script.name == "claim" and reply[0] == "OK":
            granted = self._note_grants(script, args, reply[1])
            if granted and self.on_grant is not None:
                hook, self.on_grant = self.on_grant, None
                await hook()
        if script.name == "commit" and reply[0] == "OK":
            session = str(args[script.header.args.index("session")])
            self.commits[session] = self.commits.get(session, 0) + 1
            turn = str(args[script.header.args.index("turn")])
            for (body,) in _listed(script, args, "items"):
                stored = body if isinstance(body, bytes) else str(body).encode()
                item = decode_item(self._payloads.of(session).open("item", stored))
                if isinstance(item, StepRecord):
                    self.recorded.add((session, turn, item.name))
        await self.look()

    def _note_grants(self, script: Script, args: Sequence[Value], answers: list[Any]) -> bool:
        incarnation = str(args[script.header.args.index("incarnation")])
        sessions = args[len(script.header.args) + 1 :]
        any_granted = False
        for session, answer in zip(sessions, answers, strict=True):
            if answer[0] == b"GRANTED":
                granted = (int(answer[1]), incarnation)
                known = self.grants.setdefault(str(session), [])
                any_granted = True
                if granted not in known:
                    known.append(granted)
        return any_granted

    # What the scenario sees.

    def follow(self, session_id: str) -> Follower:
        """The follower of a session; it reads from the session's first event on."""
        return self.followers.setdefault(
            session_id, Follower(self.store, session_id, self._user_waits.clear)
        )

    async def look(self) -> None:
        """Have every follower read on, and wake who waits for what it has seen."""
        await asyncio.gather(*(follower.read_on() for follower in self.followers.values()))
        self.tell()

    def tell(self) -> None:
        """Say that something has changed."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    @property
    def next_change(self) -> asyncio.Event:
        """Set when anything changes after now."""
        return self._changed

    async def until(self, session_id: str, wanted: Any) -> Event:
        """Wait, for the scenario, until a session's follower has seen an event."""
        follower = self.follow(session_id)
        waiting = follower.wait_for(wanted)
        if not waiting.done():
            self._user_waits.set()
        try:
            return await waiting
        finally:
            self._user_waits.clear()

    def end_of_scenario(self) -> None:
        """The scenario does nothing more."""
        self.scenario_over = True
        self._user_waits.set()
        self.tell()

    # What time does.

    async def expire(self, incarnation: str) -> None:
        """Let every lease of an incarnation run out, as if its time had passed."""
        owners = await self._own.command("HGETALL", self.at.named("owners"))
        for session, token in zip(owners[::2], owners[1::2], strict=True):
            if token.decode().split("|")[1] == incarnation:
                key = self.at.named("leases")
                await self._own.command("ZADD", key, "XX", LONG_AGO_MS, session)

    async def place_overdue(self) -> None:
        """Do at once what any worker's sweep would do: offer what has expired."""
        peeked = await self.lease_store.peek(0, [], window=0)
        await self.lease_store.place_overdue(0, peeked)

    async def anything_to_do(self, routes: Sequence[str]) -> bool:
        """Whether a look into the indexes would show a worker something."""
        now_ms = await self._now_ms()
        overdue = [("ZCOUNT", self.at.named(name), "-inf", now_ms) for name in ("leases", "timers")]
        ready = [("ZCARD", self.at.ready(route)) for route in routes]
        return any(await self._own.commands([*overdue, *ready]))

    async def skip_ahead(self) -> bool:
        """Let the time pass until the next timer is due; False if there is none.

        Redis's own clock cannot be set. So what is due in the store comes nearer, and every
        worker's idea of the time moves on by as much.
        """
        first = await self._own.command("ZRANGE", self.at.named("timers"), 0, 0, "WITHSCORES")
        if not first:
            return False
        pause_ms = max(1, int(float(first[1])) - await self._now_ms() + 1)
        self._ahead_ms += pause_ms
        for executor in self._executors:
            executor.clock.ahead_ms = self._ahead_ms
        timers = await self._own.command("ZRANGE", self.at.named("timers"), 0, -1, "WITHSCORES")
        for session, due in zip(timers[::2], timers[1::2], strict=True):
            await self._bring_nearer(session.decode(), pause_ms)
            nearer = int(float(due)) - pause_ms
            await self._own.command("ZADD", self.at.named("timers"), nearer, session)
        return True

    async def _bring_nearer(self, session_id: str, pause_ms: int) -> None:
        head, work = self.at.session(session_id, "head"), self.at.session(session_id, "work")
        not_before, flat = await self._own.commands(
            [("HGET", head, "not_before"), ("HGETALL", work)]
        )
        if not_before and int(not_before) > pause_ms:
            await self._own.command("HSET", head, "not_before", int(not_before) - pause_ms)
        for field, value in zip(flat[::2], flat[1::2], strict=True):
            parts = value.decode().split("|")
            if len(parts) > 1 and int(parts[1] or 0) > pause_ms:
                parts[1] = str(int(parts[1]) - pause_ms)
                await self._own.command("HSET", work, field, "|".join(parts))

    async def _now_ms(self) -> int:
        return time_ms(await self._own.command("TIME"))


@asynccontextmanager
async def fresh_world(settings: Settings, url: str | None) -> AsyncIterator[World]:
    """A store of its own: in this process, or on a server under a prefix that is deleted again.

    Raises `ExtraMissing` without a URL when fakeredis is not installed.
    """
    own = settings.model_copy(update={"partitions": 1, "prefix": f"sweep-{secrets.token_hex(6)}"})
    world = World(own, url, None if url is not None else _fakeredis().FakeServer())
    await world.open()
    try:
        yield world
    finally:
        await world.aclose()


def _listed(script: Script, args: Sequence[Value], wanted: str) -> list[Sequence[Value]]:
    """The records of one list among a script's arguments."""
    at = len(script.header.args)
    for name, fields in script.header.lists.items():
        count, width = int(args[at]), len(fields)
        if name == wanted:
            return [args[at + 1 + k * width :][:width] for k in range(count)]
        at += 1 + count * width
    raise KeyError(wanted)


def _fakeredis() -> Any:
    try:
        import_module("lupa")  # what its Lua needs
        return import_module("fakeredis")
    except ModuleNotFoundError:
        raise ExtraMissing(what="a sweep without url=", extra="testing") from None

"""Drive the scripts one by one: raw requests, raw answers as text, states made in one line."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from changeover_shared._events import Event
from changeover_shared._store import decode, requests
from changeover_shared._store.fleet import Fleet
from changeover_shared._store.keys import PartitionKeys, queue_of, route_of
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
    NewWait,
    Permit,
    Submit,
)
from changeover_shared._store.requests import Request
from changeover_shared._store.scripts import Script, script
from changeover_shared._words import CommitKind, GiveUp
from tests.support.fleet import Stores

SESSION = "telegram:42"
ROUTE = route_of("assistant")
TTL_MS = 30_000
ONE = Caps(tenant=1)
"""One session of a tenant at once."""
ONE_A_MINUTE = (Bucket("main", "", requests=1),)
"""One request to a model a minute."""
LATER_MS = 60_000
"""Far enough ahead that no test reaches it."""

_SUBMIT_FIELDS = {field.name for field in dataclasses.fields(Submit)}
ACCEPTED = (
    "n", "seq", "turn", "status", "ready_count", "position", "agent", "route", "replaced",
)  # fmt: skip
COMMITTED = (
    "held", "rev", "first_seq", "n", "ctl_epoch", "ctl_kind", "waiting", "ready_count", "status",
)  # fmt: skip


def text(value: Any) -> Any:
    """A raw reply with every byte string as text; what is none can still be told apart."""
    if isinstance(value, list):
        return [text(one) for one in value]
    return value.decode(errors="surrogateescape") if isinstance(value, bytes) else value


def fields(flat: Sequence[str]) -> dict[str, str]:
    """A flat `[field, value ...]` answer as a dict."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def accepted(reply: list[Any]) -> dict[str, Any]:
    """An ACCEPTED reply by name."""
    assert reply[0] == "ACCEPTED", reply
    return dict(zip(ACCEPTED, reply[1:], strict=True))


def committed(reply: list[Any]) -> dict[str, Any]:
    """An OK or REPLAY reply of a commit by name."""
    assert reply[0] in ("OK", "REPLAY"), reply
    return dict(zip(COMMITTED, reply[1:], strict=True))


class Driver:
    """One session on one store, driven script by script."""

    def __init__(
        self, stores: Stores, session: str = SESSION, route: str = ROUTE, *, first_commit: int = 1
    ) -> None:
        self.stores = stores
        self.session = session
        self.route = route
        self.fleet: Fleet = stores.worker._fleet
        self.executor = stores.executor
        self._ids = itertools.count(first_commit)

    def of(self, session: str, route: str = ROUTE) -> Driver:
        """The same store, another session."""
        other = Driver(self.stores, session, route)
        other._ids = self._ids
        return other

    def neighbour(self, name: str = "neighbour", route: str = ROUTE) -> Driver:
        """A session of the same partition."""
        names = (f"{name}:{i}" for i in itertools.count())
        return self.of(
            next(one for one in names if self.fleet.keys.of(one) == self.partition), route
        )

    # What Redis holds

    @property
    def partition(self) -> PartitionKeys:
        return self.fleet.keys.of(self.session)

    def key(self, name: str) -> str:
        """A key of the session."""
        return self.partition.session(self.session, name)

    def shared(self, name: str) -> str:
        """A key of the partition."""
        if name == "ready":
            return self.partition.ready(self.route)
        if name == "solo":
            return self.partition.solo(self.route)
        return self.partition.named(name)

    async def redis(self, *args: Any) -> Any:
        """One bare command, its answer as text."""
        return text(await self.executor.command(*args))

    async def now(self) -> int:
        """Redis's time in milliseconds."""
        seconds, micros = await self.redis("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    async def head(self) -> dict[str, str]:
        return fields(await self.redis("HGETALL", self.key("head")))

    async def work(self) -> dict[str, list[str]]:
        """The open work: name -> parts."""
        flat = fields(await self.redis("HGETALL", self.key("work")))
        return {name: value.split("|") for name, value in flat.items() if name != "_"}

    async def receipt(self, submission: str) -> dict[str, str] | None:
        value = await self.redis("HGET", self.key("receipts"), submission)
        names = ("digest", "n", "seq", "accepted", "ending", "turn", "end_seq", "ended")
        return None if value is None else dict(zip(names, value.split("|"), strict=True))

    async def journal(self) -> list[dict[str, str]]:
        """Every event, with its `seq`."""
        raw = await self.redis("XRANGE", self.key("journal"), "-", "+")
        return [{"seq": entry.split("-")[0], **fields(flat)} for entry, flat in raw]

    async def kinds(self) -> list[str]:
        """The types of all events, in order."""
        return [event["type"] for event in await self.journal()]

    async def bodies(self, stream: str) -> dict[int, str]:
        """A stream of bodies by number."""
        raw = await self.redis("XRANGE", self.key(stream), "-", "+")
        return {int(entry.split("-")[0]): fields(flat)["body"] for entry, flat in raw}

    async def status(self) -> str:
        return (await self.head())["status"]

    async def indexes(self) -> set[str]:
        """Which of the partition's indexes hold the session."""
        found = set()
        for name in ("ready", "solo", "timers", "leases", "quarantine"):
            if await self.redis("ZSCORE", self.shared(name), self.session) is not None:
                found.add(name)
        return found

    async def score(self, index: str) -> float:
        return float(await self.redis("ZSCORE", self.shared(index), self.session))

    async def order(self, index: str = "ready") -> list[str]:
        return list(await self.redis("ZRANGE", self.shared(index), 0, -1))

    @asynccontextmanager
    async def unchanged(self) -> AsyncIterator[None]:
        """Assert that nothing in Redis is different afterwards."""
        before = await self.stores.dump()
        yield
        assert await self.stores.dump() == before

    @asynccontextmanager
    async def only_a_warning(self, code: str) -> AsyncIterator[None]:
        """Assert that one warning event, and its counters, are all that is different."""
        before = await self.stores.dump()
        journal = await self.journal()
        yield
        events = await self.journal()
        assert events[:-1] == journal
        assert events[-1]["type"] == "warning"
        assert events[-1]["body"] == f'{{"code":"{code}"}}'
        after = await self.stores.dump()
        counted = {b"seq", b"at_ms", b"epoch", b"epoch_seq", b"refused"}
        for dump in (before, after):
            del dump[self.key("journal")]
            dump[self.key("head")] = [
                pair for pair in dump[self.key("head")] if pair[0] not in counted
            ]
        assert after == before

    # What a test forces

    async def expire(self, at_ms: int = 1) -> None:
        """Let the session's lease have run out, at `at_ms` on Redis's clock."""
        await self.redis("ZADD", self.shared("leases"), "XX", at_ms, self.session)

    async def set_head(self, **values: Any) -> None:
        for name, value in values.items():
            await self.redis("HSET", self.key("head"), name, value)

    async def make_due(self, n: int) -> None:
        """Let the input's due time have passed."""
        parts = (await self.work())[str(n)]
        parts[1] = "1"
        await self.redis("HSET", self.key("work"), n, "|".join(parts))

    async def set_wait_due(self, wait: str) -> None:
        """Let the wait's deadline have passed."""
        parts = (await self.work())[f"w:{wait}"]
        parts[1] = "1"
        await self.redis("HSET", self.key("work"), f"w:{wait}", "|".join(parts))
        await self.redis("ZADD", self.shared("timers"), "XX", 1, self.session)

    async def make_schedule_due(self, name: str, at_ms: int = 1) -> None:
        """Let the schedule be due at a time."""
        keys = self.fleet.keys.schedules
        value = await self.executor.command("HGET", keys.by_name, name)
        await self.redis("HSET", keys.by_name, name, due_since(value, at_ms))
        await self.redis("ZADD", keys.due, at_ms, name)

    # The scripts

    async def call(self, request: Request, **overrides: Any) -> list[Any]:
        """Run a request; `overrides` replace arguments of the script."""
        known = script(request.name).header.args
        assert set(overrides) <= set(known), overrides
        changed = replace(request, args={**request.args, **overrides})
        return list(text(await self.fleet.call(changed)))

    async def bare(self, request: Request, **overrides: Any) -> list[Any]:
        """The same without the fleet between: its guards' words come through."""
        asked = replace(request, args={**request.args, **overrides})
        return list(text(await self.executor.run(self.fleet._call(asked))))

    async def released(self, release: Script, request: Request) -> list[Any]:
        """The same with another text of the script."""
        call = replace(self.fleet._call(request), script=release)
        return list(text(await self.executor.run(call)))

    async def replid(self) -> str:
        """The replication id of the server."""
        return await self.executor.replication_id(self.shared("meta"))

    async def submit(self, id: str = "m1", *, cls: str = "turn", **given: Any) -> list[Any]:
        """Submit; `given` are fields of `Submit` or arguments of the script."""
        record = {name: value for name, value in given.items() if name in _SUBMIT_FIELDS}
        args = {name: value for name, value in given.items() if name not in _SUBMIT_FIELDS}
        route = args.pop("route", self.route)
        defaults = args.pop("defaults", None)
        asked = Submit(
            **{
                "session_id": self.session,
                "submission_id": id,
                "digest": f"d:{id}",
                "cls": cls,
                "body": f"body of {id}",
                "create": Create(route=self.route, agent="assistant"),
                **record,
            }
        )
        request = requests.submit(
            self.fleet.keys,
            self.stores.producer.settings,
            asked,
            route=route,
            not_after_ms=await self.now() + LATER_MS,
            defaults=defaults,
        )
        return await self.call(request, **args)

    async def answer(self, wait: str, id: str = "a1") -> list[Any]:
        return await self.submit(id, cls="answer", target=wait, may_create=False)

    async def interrupt(self, id: str = "i1", turn: str = "") -> list[Any]:
        return await self.submit(id, cls="ctl", target=turn, may_create=False)

    async def cancel(self, target: str, id: str = "c1", route: str | None = None) -> list[Any]:
        request = requests.control(
            self.fleet.keys,
            self.session,
            request_id=id,
            target=target,
            route=self.route if route is None else route,
            not_after_ms=await self.now() + LATER_MS,
        )
        return await self.call(request)

    async def peek(
        self,
        *routes: str,
        window: int = 64,
        max_ttl_ms: int = 10 * TTL_MS,
        solo: bool = False,
        sums: bool = False,
    ) -> list[Any]:
        asked = routes or (self.route,)
        return await self.call(
            requests.peek(
                self.partition, asked, window=window, max_ttl_ms=max_ttl_ms, solo=solo, sums=sums
            )
        )

    async def reap(self, *ids: str, route: str | None = None) -> list[Any]:
        """Reap; one `[word, status]` each."""
        chosen = self.route if route is None else route
        request = requests.reap(
            self.partition,
            [(one, chosen) for one in ids or (self.session,)],
            max_ttl_ms=10 * TTL_MS,
        )
        reply = await self.call(request)
        assert reply[0] == "OK"
        return list(reply[1])

    async def claim(
        self,
        *ids: str,
        incarnation: str = "w1:aa",
        nonce: str = "nonce-1",
        ttl_ms: int = TTL_MS,
        max_step_ms: int = 600_000,
        solo: bool = False,
        max_attempts: int = 5,
        no_progress_ms: int = 0,
        route: str | None = None,
    ) -> list[Any]:
        """Claim; one `[word, ...]` each."""
        request = requests.claim(
            self.partition,
            self.route if route is None else route,
            ids or (self.session,),
            incarnation=incarnation,
            nonce=nonce,
            ttl_ms=ttl_ms,
            max_step_ms=max_step_ms,
            solo=solo,
            max_attempts=max_attempts,
            no_progress_ms=no_progress_ms,
            not_after_ms=await self.now() + LATER_MS,
        )
        reply = await self.call(request)
        assert reply[0] == "OK"
        return list(reply[1])

    async def renew(self, *leases: Lease, ttl_ms: int = TTL_MS) -> list[Any]:
        reply = await self.call(requests.renew(self.partition, leases, ttl_ms=ttl_ms))
        assert reply[0] == "OK"
        return list(reply[1])

    async def append(
        self, lease: Lease, batch: int = 1, *events: Event, cap: int = 10_000
    ) -> list[Any]:
        chosen = events or (Event(type="delta"),)
        return await self.call(
            requests.append(self.fleet.keys, lease, batch_no=batch, events=chosen, cap=cap)
        )

    async def commit(self, lease: Lease, kind: str = "step", **given: Any) -> list[Any]:
        """Commit on top of what the head says, unless `given` says otherwise."""
        no_progress_ms = given.pop("no_progress_ms", 0)
        commit = await self.commit_of(kind, **given)
        return await self.committing(lease, commit, no_progress_ms=no_progress_ms)

    async def committing(
        self, lease: Lease, commit: Commit, *, no_progress_ms: int = 0
    ) -> list[Any]:
        """Send this very commit, once more or for the first time."""
        return await self.call(
            requests.commit(self.fleet.keys, lease, commit, no_progress_ms=no_progress_ms)
        )

    async def commit_of(self, kind: str = "step", **given: Any) -> Commit:
        head = await self.head()
        start = kind == "start"
        return Commit(
            **{
                "commit_id": f"k{next(self._ids)}",
                "rev": int(head.get("rev", 0)),
                "turn": f"t_{int(head.get('turns', 0)) + 1}" if start else head.get("turn", ""),
                "kind": CommitKind(kind),
                "checkpoint": f"state after {kind}",
                **given,
            }
        )

    async def give_up(self, lease: Lease, reason: GiveUp = GiveUp.HAND_OFF) -> list[Any]:
        return await self.call(requests.give_up(self.fleet.keys, lease, reason))

    async def evict(self, *held: tuple[str, str], why: str = "") -> list[Any]:
        return await self.call(requests.evict(self.partition, held, why=why))

    # States

    async def hold(
        self, *, incarnation: str = "w1:aa", nonce: str = "nonce-1", **given: Any
    ) -> Lease:
        """Claim the ready session."""
        (answer,) = await self.claim(incarnation=incarnation, nonce=nonce, **given)
        assert answer[0] == "GRANTED", answer
        return Lease(self.session, int(answer[1]), incarnation, nonce, self.route)

    async def holder(self) -> Lease:
        """The lease that the session has now."""
        token = await self.redis("HGET", self.shared("owners"), self.session)
        fence, incarnation, nonce = token.split("|")
        return Lease(self.session, int(fence), incarnation, nonce, self.route)

    async def reroute(self, to: str = "other@1", **overrides: Any) -> list[Any]:
        """Move the session from its first route."""
        request = requests.reroute(
            self.fleet.keys,
            self.session,
            from_route=self.route,
            to_route=to,
            not_after_ms=await self.now() + LATER_MS,
        )
        return await self.call(request, **overrides)

    async def defer(self, route: str | None = None, *, span_ms: int = 1500) -> list[Any]:
        request = requests.defer(
            self.fleet.keys, self.session, route=route or self.route, span_ms=span_ms
        )
        return await self.call(request)

    async def delete(self, *, window_ms: int = 86_400_000, **overrides: Any) -> list[Any]:
        """End the life of the session that is there, or of its first one."""
        head = decode.head(await self.executor.command("HGETALL", self.key("head")))
        if head is None:
            neighbour = decode.head(
                await self.executor.command("HGETALL", self.neighbour().key("head"))
            )
            assert neighbour is not None, "nobody has submitted anything"
            head = neighbour
        request = requests.delete(
            self.fleet.keys,
            head,
            self.session,
            reason="because",
            window_ms=window_ms,
            not_after_ms=await self.now() + LATER_MS,
        )
        return await self.call(request, **overrides)

    async def trim(self, *, events: int = 1, records: int = 1, items: int = 0) -> list[Any]:
        request = requests.trim(
            self.fleet.keys, self.session, events=events, records=records, items_from=items
        )
        return await self.call(request)

    async def purge(self, *, window_ms: int = 86_400_000, most: int = 500) -> list[Any]:
        """The answer for the session."""
        request = requests.purge(self.partition, [self.session], window_ms=window_ms, most=most)
        (answer,) = (await self.call(request))[1]
        return list(answer)

    async def pressure(self, used: int = 0, limit: int = 0, *, span_ms: int = TTL_MS) -> list[Any]:
        """Say that memory is short; without a limit, that it is not."""
        memory = Memory(used, limit) if limit else None
        return await self.call(requests.pressure(self.partition, memory, span_ms=span_ms))

    async def full(self, *crowded: Crowd, span_ms: int = TTL_MS) -> list[Any]:
        """Say whose inboxes are full."""
        return await self.call(requests.full(self.partition, crowded, span_ms=span_ms))

    async def recount(self, count: int, *session_ids: str) -> list[Any]:
        """Count what waits in these sessions, or in this one."""
        ids = session_ids or (self.session,)
        return await self.call(requests.recount(self.partition, ids, count=count))

    async def sums(self) -> dict[str, int]:
        """What waits in the partition, of all and of each tenant."""
        flat = (await self.peek(sums=True))[5]
        found = {whose: int(count) for whose, count in zip(flat[::2], flat[1::2], strict=True)}
        found.pop("!", None)
        return found

    async def pause(self, queue: str = "assistant", said: str = '{"by":"ops"}') -> list[Any]:
        return await self.call(requests.pause(self.partition, queue, said))

    async def resume(self, queue: str = "assistant") -> list[Any]:
        return await self.pause(queue, "")

    async def schedule(self, name: str = "s1", **given: Any) -> list[Any]:
        """Keep a schedule; `given` are those of `requests.schedule`."""
        version = given.get("version", "v1")
        request = requests.schedule(
            self.fleet.keys.schedules,
            name,
            self.session,
            **{
                "not_after_ms": await self.now() + LATER_MS,
                "version": version,
                "due_ms": 1000,
                "look_ms": given.get("due_ms", 1000),
                "body": f"what {name} does",
                "most": 10,
                **given,
            },
        )
        return await self.call(request)

    async def schedules(self) -> dict[str, tuple[list[str], int]]:
        """All schedules: version, time, session and body, and when to look at them."""
        keys = self.fleet.keys.schedules
        held = fields(await self.redis("HGETALL", keys.by_name))
        look = fields(await self.redis("ZRANGE", keys.due, 0, -1, "WITHSCORES"))
        assert held.keys() == look.keys()
        return {name: (value.split("|", 3), int(float(look[name]))) for name, value in held.items()}

    async def permit(
        self, nonce: str = "n1", *, tenant: str = "acme", caps: Caps = ONE, span_ms: int = TTL_MS
    ) -> str:
        """Ask that the session may run: GRANTED, or what is full."""
        asked = Permit(self.session, nonce, queue_of(self.route), tenant)
        request = requests.permit(self.fleet.keys, [asked], caps, span_ms=span_ms)
        ((word, value),) = (await self.call(request))[1]
        return str(value if word == "FULL" else word)

    async def give_back(self, nonce: str = "n1", *, tenant: str = "acme", caps: Caps = ONE) -> None:
        asked = Permit(self.session, nonce, queue_of(self.route), tenant)
        await self.stores.worker.give_back([asked], caps)

    def asked(
        self,
        request: str,
        *,
        place: str = "",
        tokens: int = 100,
        limit: Sequence[Bucket] = ONE_A_MINUTE,
    ) -> Asked:
        """A request to a model; its place is its own if no other is named."""
        return Asked(place or f"place of {request}", request, tokens, tuple(limit))

    def limit_request(
        self, request: str, *, span_ms: int = TTL_MS, longest_ms: int = 3_600_000, **given: Any
    ) -> Request:
        return requests.ask_limit(
            self.fleet.keys, self.asked(request, **given), span_ms=span_ms, longest_ms=longest_ms
        )

    async def limit(self, request: str, **given: Any) -> int:
        """Ask whether a model may be asked: for how many ms not yet, and -1 if that is too far."""
        word, *values = await self.call(self.limit_request(request, **given))
        return int(values[0]) if word == "WAIT" else {"GRANTED": 0, "FAR": -1}[word]

    async def run(self, *ids: str, **given: Any) -> Lease:
        """Submit, claim, and start a turn that takes everything."""
        for id in ids or ("m1",):
            await self.submit(id)
        lease = await self.hold(**given)
        taken = tuple(int(n) for n in await self.work())
        committed(await self.commit(lease, "start", take=taken))
        return lease

    async def park(self, wait: str = "w1", kind: str = "approval", deadline_ms: int = 0) -> Lease:
        """A turn that waits durably; the lease that is over."""
        lease = await self.run()
        await self.wait_for(lease, wait, kind, deadline_ms)
        return lease

    async def wait_for(
        self, lease: Lease, wait: str = "w1", kind: str = "approval", deadline_ms: int = 0
    ) -> dict[str, Any]:
        opened = (NewWait(wait, kind, deadline_ms),)
        return committed(await self.commit(lease, "step", waits=opened, next="park"))

    async def finish(self, lease: Lease, end: str = "completed", **given: Any) -> dict[str, Any]:
        chosen = {"next": "release", "progress": True, **given}
        return committed(await self.commit(lease, "end", end=end, **chosen))

    async def quarantine(self) -> None:
        """Stop a ready session for too many attempts."""
        await self.set_head(attempts=5)
        (answer,) = await self.claim(nonce="too-often", solo=True)
        assert answer[0] == "QUARANTINED", answer

    async def stop(self, **overrides: Any) -> list[Any]:
        """An operator quarantines the session."""
        request = requests.quarantine(
            self.fleet.keys,
            await self._shown(),
            self.session,
            event=Event(type="session_quarantined"),
            not_after_ms=await self.now() + LATER_MS,
        )
        return await self.call(request, **overrides)

    async def redrive(self, skip: int = 0, *, record: str = "", **overrides: Any) -> list[Any]:
        """An operator lets the session go on, without an input."""
        request = requests.redrive(
            self.fleet.keys,
            await self._shown(),
            self.session,
            skip=skip,
            event=Event(type="session_redriven"),
            record=record,
            not_after_ms=await self.now() + LATER_MS,
        )
        return await self.call(request, **overrides)

    async def dead_letter(self, *, record: str = "", **overrides: Any) -> list[Any]:
        """An operator gives up what is open."""
        shown = await self._shown()
        request = requests.dead_letter(
            self.fleet.keys,
            shown,
            self.session,
            last=shown.n,
            event=Event(type="session_redriven"),
            record=record,
            not_after_ms=await self.now() + LATER_MS,
        )
        return await self.call(request, **overrides)

    async def _shown(self) -> Head:
        """The session's head, or that of one that has not begun."""
        flat = await self.executor.command("HGETALL", self.key("head"))
        first = [b"status", b"idle", b"route", self.route.encode()]
        head = decode.head(flat) or decode.head(first)
        assert head is not None
        return head

    async def close(self, lease: Lease) -> None:
        await self.finish(lease, next="close")

    async def wipe_out(self) -> None:
        """What a deletion leaves: a tombstone with the counters."""
        head = await self.head()
        kept = ("v", "life", "fence", "seq", "rev", "n", "turns", "transcript_n", "epoch", "at_ms")
        counters = {name: head[name] for name in kept if name in head}
        for index in ("ready", "solo", "timers", "leases", "sessions"):
            await self.redis("ZREM", self.shared(index), self.session)
        for table in ("owners", "stalls", "alerts"):
            await self.redis("HDEL", self.shared(table), self.session)
        for name in ("head", "work", "inbox", "checkpoint", "transcript", "turns"):
            await self.redis("UNLINK", self.key(name))
        counters["fence"] = str(int(counters["fence"]) + 1)
        await self.set_head(**counters, status="deleted")


def due_since(value: bytes, at_ms: int) -> bytes:
    """A schedule as it is stored, due at another time."""
    version, _, rest = value.split(b"|", 2)
    return b"|".join((version, str(at_ms).encode(), rest))


def hash_slot(key: str) -> str:
    """What decides a key's slot on a cluster: its hash tag."""
    start = key.index("{")
    return key[start + 1 : key.index("}", start)]

"""A worker that freezes in the middle of its turns and wakes up when somebody else holds them.

Each round: sessions run on a real worker; the worker is stopped (SIGSTOP) at a moment that the seed
picks; another incarnation takes the sessions, after their leases have run out or, which is the same
race but shorter, after they were ended; what Redis holds of them is read; the worker goes on
(SIGCONT) and finds out, one way or another. Not a byte of the sessions may have changed by then.
The sessions are handed back, and the worker itself, which must still live, ends their turns.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from changeover import Client, SyncClient
from changeover_shared._identifiers import new_incarnation
from changeover_shared._settings import read_settings
from changeover_shared._store.lease_store import LeaseStore
from changeover_shared._store.records import Grant, Head
from changeover_shared._words import GiveUp, Status
from changeover_worker.testing._snapshot import changed, every_key
from tests.chaos.storms import Say
from tests.support.processes import Process, processes
from tests.support.promises import Sent, read_journal, violations
from tests.support.servers import SERVERS, running_server
from tests.support.storms import entries, start_storm_worker
from tests.support.traced_tool import runs_in
from tests.support.working import eventually, eventually_found, take

LEASE: Mapping[str, str] = {"lease": "900ms", "renew": "250ms", "margin": "150ms"}
LAG_LIMIT_S = 1.5
"""A loop that is blocked for longer is not live; one that slept with its process is."""
LONG_SLEEP_S = 2.5
SESSIONS = ("look", "talk", "look")
"""What is asked of the sessions that the worker holds in each round."""
TURN_S = 0.35
"""About how long a turn takes."""
RUN_OUT = 0.15
"""The share of rounds in which leases run out by themselves."""
HEIR_MS = 60_000


@dataclass
class Tally:
    """What was seen."""

    rounds: int = 0
    """In which the worker was frozen while it held something."""
    ran_out: int = 0
    """How many of them after their leases had run out by themselves."""
    noticed: Counter[str] = field(default_factory=Counter)
    """How the worker found out: by a write that was refused, by its keeper, or before it began."""
    broken: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        ways = ", ".join(f"{count} by {way}" for way, count in sorted(self.noticed.items()))
        return (
            f"frozen {self.rounds} times, {self.noticed.total()} sessions taken, "
            f"{self.ran_out} of them run out; noticed {ways}"
        )


class Freezer:
    """Freezes one worker, again and again."""

    def __init__(
        self, worker: Process, store: LeaseStore, client: Client, chance: random.Random
    ) -> None:
        (started,) = entries(worker, "worker_started")
        self._incarnation = f"{started['worker']}:{started['boot']}"
        self._worker = worker
        self._store = store
        self._client = client
        self._chance = chance
        self._round = 0
        self.sent: list[Sent] = []
        self.takeovers: list[Grant] = []
        self.tally = Tally()

    async def freeze_once(self) -> None:
        """One round; it counts if the worker held something when it froze."""
        sent = await self._ask()
        await asyncio.sleep(self._chance.uniform(0.0, TURN_S))
        await self._stop()
        try:
            grants = await self._take_over([one.session for one in sent])
            before = [await self._kept(grant) for grant in grants]
            if self._round == 1:
                await asyncio.sleep(LONG_SLEEP_S)
        finally:
            self._worker.send(signal.SIGCONT)
        for grant, kept in zip(grants, before, strict=True):
            self.tally.noticed[await self._noticed(grant)] += 1
            different = changed(kept, await self._kept(grant))
            self.tally.broken += [f"{grant.lease.session_id}: {key} changed" for key in different]
            await self._store.give_up(grant.lease, GiveUp.HAND_OFF)
        for one in sent:
            await self._client.wait(one.session, one.id, timeout="30s")
        self.takeovers += grants
        self.tally.rounds += bool(grants)

    async def _ask(self) -> list[Sent]:
        self._round += 1
        sent = [
            Sent(f"frozen:{self._round}:{n}", f"m:{self._round}:{n}", f"{word} {self._round}")
            for n, word in enumerate(SESSIONS)
        ]
        for one in sent:
            await self._client.submit(one.session, one.text, id=one.id)
        self.sent += sent
        # The last one: when it was claimed, the others were.
        await eventually_found(lambda: self._has_begun(sent[-1].session), "a claim")
        return sent

    async def _stop(self) -> None:
        """Stop the worker, and wait until Redis has done all that it had sent."""
        self._worker.send(signal.SIGSTOP)
        await asyncio.to_thread(os.waitid, os.P_PID, self._worker.popen.pid, os.WSTOPPED)
        for _ in range(2):
            # What was in a socket when the first one came is done before the second one.
            await self._store.executor.command("PING")

    async def _take_over(self, sessions: list[str]) -> list[Grant]:
        """Take what the worker holds, as another incarnation."""
        held = [s for s in sessions if await self._is_held(s)]
        if self._chance.random() < RUN_OUT:
            self.tally.ran_out += len(held)
        else:
            await self._store.evict(self._incarnation)
        heir = new_incarnation("heir")
        grants = []
        for session in held:
            await eventually_found(partial(self._is_free, session), "the end of a lease")
            grants.append(await take(self._store, session, heir, ttl_ms=HEIR_MS))
        return grants

    async def _has_begun(self, session: str) -> bool:
        head = await self._head(session)
        return head.status is Status.HELD or head.turns > 0

    async def _is_held(self, session: str) -> bool:
        """Whether the worker holds a session and believes that it does."""
        head = await self._head(session)
        lost = self._losses().get((session, head.fence))
        return head.status is Status.HELD and lost is None

    async def _is_free(self, session: str) -> bool:
        await self._store.reap(self._store.keys.of(session).partition, [session])
        return (await self._head(session)).status is Status.READY

    async def _noticed(self, grant: Grant) -> str:
        """Wait until the worker has said that it lost the grant before this one; how it knows."""
        lost = (grant.lease.session_id, grant.lease.fence - 1)

        async def said() -> bool:
            return lost in self._losses()

        await eventually_found(said, f"the worker says that it lost {lost}")
        return self._losses()[lost]

    def _losses(self) -> dict[tuple[str, int], str]:
        """How the worker found out about each grant that it has lost."""
        return {
            (entry["session"], entry["fence"]): f"{event} {entry.get('script', '')}".rstrip()
            for event in ("write_refused", "lease_lost")
            for entry in entries(self._worker, event)
        }

    async def _kept(self, grant: Grant) -> dict[str, Any]:
        """All that Redis holds of a session, and who owns it."""
        session = grant.lease.session_id
        at = self._store.keys.of(session)
        kept = await every_key(self._store.executor, at.session(session, "*"))
        assert len(kept) > 3, "the pattern finds the session's keys"
        owner = await self._store.executor.command("HGET", at.named("owners"), session)
        return {**kept, "the owner": owner}

    async def _head(self, session: str) -> Head:
        head = await self._store.read_head(session)
        assert head is not None, "it was submitted to"
        return head


def late_events(client: SyncClient, takeovers: Sequence[Grant]) -> list[str]:
    """Events of an older fence that stand behind a takeover."""
    found = []
    for grant in takeovers:
        session, fence = grant.lease.session_id, grant.lease.fence
        late = [
            event.seq
            for event in read_journal(client, session)
            if event.seq > grant.head.seq and event.fence < fence
        ]
        found += [f"{session}: {late} came under an older fence than {fence}"] if late else []
    return found


async def freeze(rounds: int, kind: str, directory: Path, *, seed: int) -> Tally:
    """Freeze one worker so often while it holds something."""
    told = {"partitions": "8", "loop_lag_limit": f"{LAG_LIMIT_S}s", **LEASE}
    settings = read_settings(**told)
    chance = random.Random(seed)
    tool_log = directory / "tools.log"
    with running_server(kind) as url, processes(directory, {}) as running:
        worker = start_storm_worker(running, "w", told, url=url, tool_log=tool_log)
        await eventually(lambda: bool(entries(worker, "worker_ready")), "a worker")
        async with (
            aclosing(await LeaseStore.open(url, settings)) as store,
            Client(url, settings=settings) as client,
        ):
            freezer = Freezer(worker, store, client, chance)
            tally = freezer.tally
            while tally.rounds < rounds and not tally.broken:
                await freezer.freeze_once()
        with SyncClient(url, settings=settings) as reader:
            tally.broken += await asyncio.to_thread(late_events, reader, freezer.takeovers)
            tally.broken += await asyncio.to_thread(violations, reader, freezer.sent)
        if worker.popen.poll() is not None:
            tally.broken.append(f"the worker died: {worker.text[-1000:]}")
        tally.broken += [f"not live: {one['reason']}" for one in entries(worker, "not_live")]
    runs = runs_in(tool_log)
    tally.broken += [f"{key} is `once` and ran {n} times" for key, n in runs.items() if n > 1]
    return tally


def freeze_often(rounds: int, seed: int, say: Say) -> list[str]:
    """The promises that were broken."""
    kind = SERVERS[seed % len(SERVERS)]
    with tempfile.TemporaryDirectory(prefix="changeover-frozen-") as directory:
        try:
            tally = asyncio.run(freeze(rounds, kind, Path(directory), seed=seed))
        except AssertionError as failure:
            return [f"frozen on {kind}: {failure}"]
    say(f"frozen on {kind}: {tally}")
    return [f"frozen on {kind}: {line}" for line in tally.broken]

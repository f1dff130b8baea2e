"""Four workers and one tenant that may run two sessions: whatever comes between what, no third one
runs."""

from __future__ import annotations

import random
from collections import Counter
from typing import TypeVar

import pytest

from changeover_shared._store.records import Caps, Lease
from tests.support.driving import Driver

T = TypeVar("T")

CAP = 2
STEPS = 120
CAPS = Caps(tenant=CAP)


class Schedule:
    """Steps of workers in a random order, each of them one call to Redis."""

    def __init__(self, drive: Driver, seed: int) -> None:
        self.sessions = [drive, *(drive.neighbour(f"s{i}") for i in range(4))]
        self.random = random.Random(seed)
        self.nonces = 0
        self.permitted: list[tuple[Driver, str, int]] = []
        """Asked for and not yet claimed: session, nonce, worker."""
        self.over: list[tuple[Driver, str]] = []
        """To be given back, some time."""
        self.held: list[tuple[Driver, Lease]] = []
        self.seen: Counter[str] = Counter()

    async def step(self) -> None:
        steps = [self.ask, self.ask, self.claim, self.claim, self.give_back, self.release]
        await self.random.choice([*steps, self.extend, self.crash])()

    async def ask(self) -> None:
        session = self.random.choice(self.sessions)
        self.nonces += 1
        nonce = f"n{self.nonces}"
        word = await session.permit(nonce, caps=CAPS)
        self.seen[word] += 1
        if word == "GRANTED":
            self.permitted.append((session, nonce, self.random.randrange(4)))

    async def claim(self) -> None:
        if not self.permitted:
            return
        session, nonce, worker = self._pop(self.permitted)
        (answer,) = await session.claim(incarnation=f"w{worker}:aa", nonce=nonce)
        self.seen[answer[0]] += 1
        if answer[0] == "GRANTED":
            lease = Lease(session.session, int(answer[1]), f"w{worker}:aa", nonce, session.route)
            self.held.append((session, lease))
        else:
            self.over.append((session, nonce))

    async def give_back(self) -> None:
        if self.over:
            session, nonce = self._pop(self.over)
            await session.give_back(nonce, caps=CAPS)

    async def release(self) -> None:
        if self.held:
            session, lease = self._pop(self.held)
            await session.give_up(lease)
            self.over.append((session, lease.nonce))

    async def extend(self) -> None:
        if self.held:
            session, lease = self.random.choice(self.held)
            assert await session.permit(lease.nonce, caps=CAPS) == "GRANTED"
            assert (await session.renew(lease))[0][0] == "OK"

    async def crash(self) -> None:
        """The lease is over, and nobody gives the permit back."""
        if self.held and self.random.random() < 0.3:
            session, _ = self._pop(self.held)
            await session.expire()
            await session.reap()
            await session.set_head(attempts=0)
            self.seen["crashed"] += 1

    def _pop(self, found: list[T]) -> T:
        return found.pop(self.random.randrange(len(found)))

    async def running(self) -> int:
        """How many sessions have a live lease."""
        one, now = self.sessions[0], await self.sessions[0].now()
        return int(await one.redis("ZCOUNT", one.shared("leases"), f"({now}", "+inf"))


@pytest.mark.parametrize("seed", range(6))
async def test_no_more_run_than_may_whatever_comes_between(drive: Driver, seed: int) -> None:
    """Hole 43."""
    schedule = Schedule(drive, seed)
    for session in schedule.sessions:
        await session.submit("m1")
    most = 0
    for _ in range(STEPS):
        await schedule.step()
        running = await schedule.running()
        assert running <= CAP
        most = max(most, running)
    assert most == CAP
    assert schedule.seen["GRANTED"] and schedule.seen["tenant"]

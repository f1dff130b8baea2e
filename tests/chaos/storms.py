"""What may happen to a Redis while a fleet works on it, each by a name.

A storm goes on for about so many seconds, at least once, and leaves the server as it was. In
between the fleet must go on: every worker claims and ends something new.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.nodes import Node, running_node
from tests.support.servers import SERVERS
from tests.support.storms import FleetAtWork, Report, fleet_at_work

Say = Callable[[str], None]
LONG_LEASE: Mapping[str, str] = {"lease": "30s", "renew": "10s", "margin": "3s"}
SIX_SECONDS: Mapping[str, str] = {"lease": "6s", "renew": "2s", "margin": "500ms"}
PAUSE_S = 20.0
FULL_S = 5.0
KILL_EVERY_S = 1.0


@dataclass(frozen=True)
class Weather:
    """What a storm has at hand."""

    fleet: FleetAtWork
    server: Node
    chance: random.Random
    seconds: float
    pause_s: float = PAUSE_S
    """How long the server is silent, where a storm makes it so."""

    async def blows(self, blow: Callable[[], Awaitable[None]]) -> None:
        """Strike, let the fleet go on, and again until the time is over."""
        until = time.monotonic() + self.seconds
        while True:
            await self.fleet.accepts(self.chance.randint(20, 60))
            await blow()
            await self.fleet.goes_on()
            if time.monotonic() > until:
                return


async def killed(at: Weather) -> None:
    """SIGKILL, and a start on what the append-only file holds."""

    async def blow() -> None:
        at.server.kill()
        await asyncio.sleep(at.chance.uniform(0, 1))
        await asyncio.to_thread(at.server.start_again)

    await at.blows(blow)


async def frozen(at: Weather) -> None:
    """SIGSTOP: connections stay open, nothing is answered, Redis's clock goes on."""

    async def blow() -> None:
        with at.server.frozen():
            await asyncio.sleep(at.pause_s)

    await at.blows(blow)


async def held_back(at: Weather) -> None:
    """CLIENT PAUSE: the server holds back every command."""

    async def blow() -> None:
        at.server.client.client_pause(round(at.pause_s * 1000))
        await asyncio.sleep(at.pause_s)

    await at.blows(blow)


async def full(at: Weather) -> None:
    """`maxmemory` below what is used: whatever needs memory is refused."""

    async def blow() -> None:
        used = at.server.info("memory")["used_memory"]
        at.server.client.config_set("maxmemory", round(used * at.chance.uniform(0.5, 0.95)))
        await asyncio.sleep(min(FULL_S, at.pause_s))
        at.server.client.config_set("maxmemory", 0)

    await at.blows(blow)


async def cut(at: Weather) -> None:
    """CLIENT KILL once a second: of all connections, or of a random half, one by one."""
    until = time.monotonic() + at.seconds
    operator = at.server.client
    while time.monotonic() < until:
        if at.chance.random() < 0.5:
            operator.client_kill_filter(_type="normal", skipme=True)
        else:
            others = [one["id"] for one in operator.client_list(_type="normal")]
            for number in at.chance.sample(others, len(others) // 2):
                operator.client_kill_filter(_id=number, skipme=True)
        await asyncio.sleep(KILL_EVERY_S)
    await at.fleet.goes_on()


@dataclass(frozen=True)
class Storm:
    """One thing that happens, to what kind of server and fleet."""

    strike: Callable[[Weather], Awaitable[None]]
    server: tuple[str, ...] = ()
    """Flags of the server."""
    settings: Mapping[str, str] = field(default_factory=dict)
    may_lose: bool = False
    """The server may forget what it has acknowledged: `appendfsync everysec`, for a second."""


STORMS: Mapping[str, Storm] = {
    "aof-always": Storm(killed, ("--appendonly", "yes", "--appendfsync", "always")),
    "aof-everysec": Storm(
        killed, ("--appendonly", "yes", "--appendfsync", "everysec"), may_lose=True
    ),
    "pause": Storm(frozen, settings=LONG_LEASE),
    "pause-past-lease": Storm(frozen, settings=SIX_SECONDS),
    "client-pause": Storm(held_back, settings=SIX_SECONDS),
    "maxmemory": Storm(full),
    "kills": Storm(cut),
}


async def rage_of(
    storm: Storm, kind: str, directory: Path, *, seed: int, seconds: float, pause_s: float = PAUSE_S
) -> Report:
    """One storm over one fleet."""
    with running_node(kind, storm.server) as server:
        async with fleet_at_work(
            server.url, directory, seed=seed, settings=storm.settings
        ) as fleet:
            chance = random.Random(seed)
            await storm.strike(Weather(fleet, server, chance, seconds, pause_s))
            return await fleet.settled()


def named(name: str) -> list[str]:
    """The storms that a name or the beginning of one stands for."""
    return [known for known in STORMS if known == name or known.startswith(f"{name}-")]


def storm_all(names: Sequence[str], seconds: float, seed: int, say: Say) -> list[str]:
    """The promises that were broken. The storms take turns with the kinds of server."""
    found: list[str] = []
    for number, name in enumerate(names, start=seed):
        kind = SERVERS[number % len(SERVERS)]
        storm = STORMS[name]
        with tempfile.TemporaryDirectory(prefix="changeover-storm-") as directory:
            raging = rage_of(storm, kind, Path(directory), seed=seed, seconds=seconds)
            try:
                report = asyncio.run(raging)
            except AssertionError as failure:
                say(f"storm {name} on {kind}: broken off")
                found.append(f"storm {name} on {kind}: {failure}")
                continue
        against = report.against(may_lose=storm.may_lose)
        say(f"storm {name} on {kind}: {report}; {len(against)} broken promises")
        found += [f"storm {name} on {kind}: {line}" for line in against]
    return found

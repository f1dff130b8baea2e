"""What may happen to the servers of a Sentinel group and of a Cluster while a fleet works on them.

Each failover is of a seeded kind. In between the fleet must go on: every worker claims and ends
something new.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from changeover_shared._store.keys import Keys
from tests.support.cluster import ClusterNode, RunningCluster, running_cluster
from tests.support.sentinel import RunningSentinel, running_sentinel
from tests.support.servers import SERVERS
from tests.support.storms import FleetAtWork, Report, fleet_at_work

Say = Callable[[str], None]
REPLICA: Mapping[str, str] = {
    "durability": "replica",
    "durability_replicas": "2",
    "durability_timeout": "2s",
}
"""Every replica may be promoted, so every replica must confirm."""
ONE_REPLICA: Mapping[str, str] = {**REPLICA, "durability_replicas": "1"}
GOES_ON_S = 90.0
CUT_OFF_S = 0.7
"""How long a primary may acknowledge what no replica gets."""
SLOTS_MOVED = 3
"""How many of the fleet's slots are moved at a time."""


async def sentinel_failovers(
    kind: str, directory: Path, *, seed: int, times: int, durable: bool, say: Say
) -> Report:
    """Fail a Sentinel group over so many times while a fleet works on it."""
    chance = random.Random(seed)
    with running_sentinel(kind) as group:
        async with fleet_at_work(
            group.url, directory, seed=seed, settings=REPLICA if durable else {}
        ) as fleet:
            for number in range(1, times + 1):
                await fleet.accepts(chance.randint(10, 40))
                blow = chance.choice((_killed, _frozen, _asked, _cut_off))
                say(f"failover {number} of {times}: {(blow.__doc__ or '').partition('.')[0]}")
                await asyncio.to_thread(blow, group)
                await fleet.goes_on(GOES_ON_S)
            return await fleet.settled()


def _killed(group: RunningSentinel) -> None:
    """The primary is killed."""
    group.fail_over(kill=True)


def _cut_off(group: RunningSentinel) -> None:
    """The primary goes on without its replicas for a while, then it is killed."""
    primary = group.primary()
    with ExitStack() as stack:
        for replica in group.replicas():
            stack.enter_context(group.frozen(replica))
        # What their sockets hold already, they would still read.
        primary.client.client_kill_filter(_type="replica")
        time.sleep(CUT_OFF_S)
        group.kill(primary)
    group.until_promoted(primary)
    primary.start_again()
    group.until_ok()


def _asked(group: RunningSentinel) -> None:
    """An operator asks for it."""
    group.fail_over()


def _frozen(group: RunningSentinel) -> None:
    """The primary is frozen, and wakes up as a replica."""
    primary = group.primary()
    with group.frozen(primary):
        group.until_promoted(primary)
    group.until_ok()


async def cluster_failovers(
    kind: str, directory: Path, *, seed: int, times: int, say: Say
) -> Report:
    """So many times, kill a master of a Cluster and move slots, while a fleet works on it."""
    chance = random.Random(seed)
    with running_cluster(kind, replicas=1) as cluster:
        async with fleet_at_work(cluster.url, directory, seed=seed, settings=ONE_REPLICA) as fleet:
            for number in range(1, times + 1):
                for blow in (_master_killed, _slots_moved):
                    await fleet.accepts(chance.randint(10, 40))
                    say(f"round {number} of {times}: {(blow.__doc__ or '').partition('.')[0]}")
                    await asyncio.to_thread(blow, cluster, fleet, chance)
                    await fleet.goes_on(GOES_ON_S)
            return await fleet.settled()


def _master_killed(cluster: RunningCluster, fleet: FleetAtWork, chance: random.Random) -> None:
    """A master that has partitions of the fleet is killed, and comes back as a replica."""
    master = cluster.master_of(chance.choice(_tags(fleet)))
    replica = cluster.replica_of(master)
    cluster.kill(master)
    cluster.until_promoted(replica)
    cluster.start_again(master)


def _slots_moved(cluster: RunningCluster, fleet: FleetAtWork, chance: random.Random) -> None:
    """Slots of the fleet are moved to another master, key by key."""
    for tag in chance.sample(_tags(fleet), SLOTS_MOVED):
        source = cluster.master_of(tag)
        target = chance.choice([one for one in cluster.masters() if one is not source])
        _move(cluster, source, target, tag)


def _move(cluster: RunningCluster, source: ClusterNode, target: ClusterNode, tag: str) -> None:
    slot = int(source.ask("CLUSTER", "KEYSLOT", tag))
    move = cluster.move(source, target, slot)
    move.begin()
    while move.take(5):
        pass
    move.finish()


def _tags(fleet: FleetAtWork) -> list[str]:
    """A key of every partition, and one of the bells."""
    keys = Keys(fleet.settings.prefix, fleet.settings.partitions)
    return [*(one.named("meta") for one in keys.all), keys.bell("assistant@1")]


def fail_over_all(times: int, seed: int, say: Say) -> list[str]:
    """The promises that were broken, of a group that waits for its replicas, one that does not,
    and a Cluster."""
    found: list[str] = []
    kind = SERVERS[seed % len(SERVERS)]
    runs: Sequence[tuple[str, bool, Callable[[Path], Awaitable[Report]]]] = (
        ("sentinel, replica", False, lambda at: sentinel_failovers(
            kind, at, seed=seed, times=times, durable=True, say=say)),
        ("sentinel, memory", True, lambda at: sentinel_failovers(
            kind, at, seed=seed, times=times, durable=False, say=say)),
        ("cluster, replica", False, lambda at: cluster_failovers(
            kind, at, seed=seed, times=times, say=say)),
    )  # fmt: skip
    for name, may_lose, run in runs:
        with tempfile.TemporaryDirectory(prefix="changeover-failover-") as directory:
            report = asyncio.run(_awaited(run(Path(directory))))
        say(f"{name} on {kind}: {report}")
        found += [
            f"{name} on {kind}: {line}"
            for line in report.against(may_lose=may_lose, may_rewind=True)
        ]
    return found


async def _awaited(report: Awaitable[Report]) -> Report:
    return await report

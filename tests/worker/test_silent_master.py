"""One master of a Cluster says nothing any more: the partitions of the others go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import aclosing
from itertools import count

import pytest

from changeover import Client
from changeover_shared._identifiers import new_incarnation
from changeover_shared._settings import Settings
from changeover_shared._store.keys import Keys, route_of
from changeover_shared._store.lease_store import LeaseStore
from changeover_shared._words import Ending
from changeover_worker import Agent, App
from changeover_worker.testing import ScriptedModel, say
from tests.support.cluster import ClusterNode, RunningCluster, running_cluster
from tests.support.working import eventually, own_fleet, take, working


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    partial = ("--cluster-require-full-coverage", "no")
    with running_cluster(args=partial, node_timeout_ms=60_000) as found:
        yield found


def app() -> App:
    return App(
        agents=[Agent("assistant", model="m")], models={"m": ScriptedModel.always(say("done"))}
    )


def spared(cluster: RunningCluster) -> tuple[Settings, ClusterNode]:
    """A fleet, and a master that has partitions of it but none of the keys that all share."""
    while True:
        settings = own_fleet(partitions=8)
        keys = Keys(settings.prefix, settings.partitions)
        shared = (keys.bell(route_of("assistant")), keys.workers, keys.sweep, keys.config)
        busy = {cluster.master_of(key).port for key in shared}
        owners = {cluster.master_of(at.named("meta")).port for at in keys.all}
        for node in cluster.masters():
            if node.port in owners - busy and len(owners) == 3:
                return settings, node


async def test_what_is_on_the_other_masters_is_claimed_and_taken_over(
    cluster: RunningCluster,
) -> None:
    """Hole 42: a look into a partition that does not answer ends, in the claim loop and in the
    sweep."""
    settings, silent = spared(cluster)
    keys = Keys(settings.prefix, settings.partitions)
    lost = [at.partition for at in keys.all if cluster.master_of(at.named("meta")) is silent]
    sound = (f"s:{n}" for n in count() if keys.of(f"s:{n}").partition not in lost)
    dead, fresh = next(sound), next(sound)
    async with (
        aclosing(await LeaseStore.open(cluster.url, settings)) as store,
        Client(cluster.url, settings=settings) as client,
    ):
        # Its holder has died; nobody but the sweep will find that out.
        first = await client.submit(dead, "hello")
        await take(store, dead, new_incarnation("x"), ttl_ms=2_000)
        async with working(app(), settings, cluster.url):
            with cluster.frozen(silent):
                await store.ring(route_of("assistant"), lost)
                outcome = await client.run(fresh, "hello", timeout="20s")
                assert outcome.ending is Ending.COMPLETED
                outcome = await client.wait(dead, first.submission_id, timeout="40s")
                assert outcome.ending is Ending.COMPLETED


async def test_the_memory_of_the_other_masters_is_watched(cluster: RunningCluster) -> None:
    """Sessions of a full one are closed to messages before it refuses them itself."""
    settings, silent = spared(cluster)
    keys = Keys(settings.prefix, settings.partitions)
    full = next(
        node
        for node in map(cluster.master_of, (at.named("meta") for at in keys.all))
        if node is not silent
    )
    (there, *_) = (at for at in keys.all if cluster.master_of(at.named("meta")) is full)
    async with Client(cluster.url, settings=settings) as client:
        for n in range(20):
            await client.submit(f"s:{n}", "hello", agent="nobody")
        async with working(app(), settings, cluster.url):
            with cluster.frozen(silent):
                full.client.config_set("maxmemory", full.info("memory")["used_memory"] + 50_000)
                try:
                    await eventually(
                        lambda: bool(full.client.hexists(there.named("meta"), "pressure")),
                        "a partition that is told",
                    )
                finally:
                    full.client.config_set("maxmemory", 0)

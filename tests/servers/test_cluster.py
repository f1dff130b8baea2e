"""The Cluster that other tests break does what they count on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis.crc import key_slot
from redis.exceptions import AskError, TryAgainError

from tests.support.cluster import RunningCluster, running_cluster
from tests.support.servers import SERVERS

KEY = "{co:1}:a"
OTHER_KEY = "{co:1}:b"


@pytest.fixture(scope="module", params=SERVERS)
def cluster(request: pytest.FixtureRequest) -> Iterator[RunningCluster]:
    with running_cluster(request.param, replicas=1, node_timeout_ms=1000) as found:
        yield found


@pytest.fixture(autouse=True)
def empty(cluster: RunningCluster) -> None:
    cluster.flush()


def test_every_slot_is_served_by_one_of_three_masters_with_a_replica(
    cluster: RunningCluster,
) -> None:
    masters = cluster.masters()
    assert len(masters) == 3
    assert {cluster.master_of(f"{{co:{i}}}:meta") for i in range(64)} == set(masters)
    replicas = {cluster.replica_of(master) for master in masters}
    assert replicas == set(cluster.nodes) - set(masters)


def test_a_slot_moves_with_its_keys_and_may_be_looked_at_in_the_middle(
    cluster: RunningCluster,
) -> None:
    source = cluster.master_of(KEY)
    target = next(master for master in cluster.masters() if master is not source)
    for key in (KEY, OTHER_KEY):
        source.client.set(key, "v")
    move = cluster.move(source, target, key_slot(KEY.encode()))
    move.begin()
    move.take_keys([KEY])
    with pytest.raises(AskError, match=f"{move.slot} {target.address}"):
        source.client.get(KEY)
    assert source.client.get(OTHER_KEY) == "v"
    with pytest.raises(TryAgainError):
        source.client.mget(KEY, OTHER_KEY)
    assert move.take() == [OTHER_KEY]
    assert move.take() == []
    move.finish()
    assert cluster.master_of(KEY) is target
    assert target.client.mget(KEY, OTHER_KEY) == ["v", "v"]
    cluster.move_slots(target, source, [move.slot])
    assert cluster.master_of(KEY) is source
    assert source.client.mget(KEY, OTHER_KEY) == ["v", "v"]


def test_the_replica_of_a_master_that_is_killed_or_frozen_is_promoted_with_its_data(
    cluster: RunningCluster,
) -> None:
    first = cluster.master_of(KEY)
    second = cluster.replica_of(first)
    first.client.set(KEY, "v")
    second.until_it_has_all_of(first)
    cluster.kill(first)
    cluster.until_promoted(second)
    assert cluster.master_of(KEY) is second
    cluster.start_again(first)
    assert cluster.replica_of(second) is first
    first.until_it_has_all_of(second)
    with cluster.frozen(second):
        cluster.until_promoted(first)
    cluster.until_ok()
    assert cluster.master_of(KEY) is first
    assert first.client.get(KEY) == "v"

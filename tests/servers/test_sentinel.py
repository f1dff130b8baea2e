"""The Sentinels that other tests count on fail over, either way, and come to rest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.sentinel import RunningSentinel, running_sentinel
from tests.support.servers import SERVERS


@pytest.fixture(scope="module", params=SERVERS)
def group(request: pytest.FixtureRequest) -> Iterator[RunningSentinel]:
    with running_sentinel(request.param) as found:
        yield found


@pytest.mark.parametrize("kill", [False, True], ids=["asked", "killed"])
def test_a_failover_leaves_one_primary_that_all_others_follow(
    group: RunningSentinel, kill: bool
) -> None:
    old = group.primary()
    old.client.set("k", "v")
    for replica in group.replicas():
        replica.until_it_has_all_of(old)
    new = group.fail_over(kill=kill)
    assert new is not old
    assert new.client.get("k") == "v"
    assert old in group.replicas()
    assert all(replica.follows(new) for replica in group.replicas())
    assert {one.primary_port() for one in group.sentinels} == {new.port}


def test_a_frozen_primary_is_failed_over_and_follows_when_it_goes_on(
    group: RunningSentinel,
) -> None:
    old = group.primary()
    with group.frozen(old):
        new = group.until_promoted(old)
    assert group.until_ok() is new
    assert old.follows(new)


def test_flushing_reaches_the_replicas(group: RunningSentinel) -> None:
    primary = group.primary()
    primary.client.set("k", "v")
    group.flush()
    for replica in group.replicas():
        replica.until_it_has_all_of(primary)
        assert replica.client.dbsize() == 0

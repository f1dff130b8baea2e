"""`doctor` on a Cluster and under Sentinels: real ones, whole and broken."""

from __future__ import annotations

from changeover import Operator, Report, SyncOperator
from changeover_shared._server.topology import cluster_findings, nodes_in
from tests.support.cluster import running_cluster
from tests.support.fleet import small_settings
from tests.support.processes import wait_until
from tests.support.sentinel import running_sentinel

SETTINGS = small_settings(partitions=16)


async def told(url: str, *, deep: bool = False) -> Report:
    return await Operator(url, settings=SETTINGS).doctor(deep=deep)


def codes(report: Report, *levels: str) -> list[str]:
    return [one.code for one in report.findings if one.level in (levels or ("fail", "warn", "ok"))]


async def test_a_cluster_is_looked_at_on_every_primary() -> None:
    """Also deep: every key of every primary, and a slot that is on its way."""
    with running_cluster() as cluster:
        async with Operator(cluster.url, settings=SETTINGS) as operator:
            for n in range(30):
                await operator.submit(f"web:{n}", "hello", agent="nobody")
        report = await told(cluster.url, deep=True)
        assert codes(report, "ok") == ["server", "server", "server", "cluster", "fleet", "deep"]
        assert codes(report, "fail") == ["no_worker_for_queue"]
        assert codes(report, "warn").count("primary_without_replica") == 3
        (line,) = [one.text for one in report.findings if one.code == "deep"]
        assert line.startswith("30 sessions · ")
        assert line.endswith("no key without an owner, every index agrees")
        (line,) = [one.text for one in report.findings if one.code == "cluster"]
        assert line == "cluster ok · 3 primaries · 0 replicas · 16384 slots"
        for node in cluster.masters():
            assert any(str(node.port) in one.text for one in report.findings)
        with SyncOperator(cluster.url, settings=SETTINGS) as operator:
            assert codes(operator.doctor(deep=True)) == codes(report)
        for n in range(3):
            key = f"{{co:{n}}}:unheard"
            cluster.master_of(key).client.set(key, "x")
        assert codes(await told(cluster.url, deep=True), "fail").count("unknown_key") == 3


async def test_a_slot_on_its_way_and_one_of_nobody_are_said() -> None:
    with running_cluster(args=["--cluster-require-full-coverage", "no"]) as cluster:
        source, target = cluster.masters()[:2]
        cluster.move(source, target, 100).begin()
        assert "slots_moving" in codes(await told(cluster.url), "warn")
        source.ask("CLUSTER", "SETSLOT", 100, "STABLE")
        for master in cluster.masters():
            master.ask("CLUSTER", "DELSLOTS", 16000)
        wait_until(
            lambda: all("16000" not in str(m.view()) for m in cluster.masters()), "a lost slot"
        )
        assert "slots_uncovered" in codes(await told(cluster.url), "fail")


async def test_a_primary_that_is_dead_is_said_and_the_others_are_looked_at() -> None:
    with running_cluster() as cluster:
        async with Operator(cluster.url, settings=SETTINGS) as operator:
            await operator.submit("web:1", "hello")
        dead, *living = cluster.masters()
        dead.kill()
        report = await told(cluster.url)
        assert codes(report, "fail").count("redis_silent") == 1
        assert codes(report, "ok").count("server") == 2
        wait_until(
            lambda: all(one.client.cluster("INFO")["cluster_state"] == "fail" for one in living),
            "a Cluster that is down",
        )
        report = await told(cluster.url, deep=True)
        assert {"redis_silent", "cluster_down"} <= set(codes(report, "fail"))
        assert "node_down" in codes(report, "warn")
        blocking = SyncOperator(cluster.url, settings=SETTINGS).doctor(deep=True)
        assert codes(blocking) == codes(report)


def test_a_node_that_failed_is_named_with_what_to_do() -> None:
    text = (
        "aa 10.0.0.1:7001@17001 myself,master - 0 0 1 connected 0-8191 [93-<-bb]\n"
        "bb 10.0.0.2:7001@17001,host-b master,fail - 0 0 2 disconnected 8192-16383\n"
        "cc 10.0.0.3:7001@17001 slave aa 0 0 1 connected\n"
        "dd 10.0.0.4:7001@17001 slave,fail? bb 0 0 1 connected\n"
    )
    info = {"cluster_state": "fail", "cluster_slots_assigned": "16384"}
    found = [*cluster_findings(info, nodes_in(text))]
    assert [(one.level, one.code) for one in found] == [
        ("fail", "cluster_down"), ("warn", "node_down"), ("warn", "node_down"),
        ("warn", "slots_moving"),
    ]  # fmt: skip
    assert "10.0.0.2:7001" in found[1].text
    assert "bb" in (found[1].remedy or "")


async def test_a_group_under_sentinels_is_looked_at() -> None:
    with running_sentinel() as group:
        report = await told(group.url)
        assert codes(report, "ok") == ["server", "sentinel"]
        (line,) = [one.text for one in report.findings if one.code == "sentinel"]
        assert "3 of 3 Sentinels answer · quorum 2" in line
        for sentinel in group.sentinels[:2]:
            sentinel.kill()
        wait_until(lambda: not group.sentinels[0].alive, "a dead Sentinel")
        after = codes(await told(group.url))
        assert after.count("sentinel_down") == 2
        with SyncOperator(group.url, settings=SETTINGS) as operator:
            assert codes(operator.doctor()).count("sentinel_down") == 2


async def test_a_replica_is_no_place_for_a_fleet() -> None:
    with running_sentinel() as group:
        replica = group.replicas()[0]
        report = await told(f"redis://{replica.address}/0")
        assert (report.verdict, codes(report)) == ("fail", ["redis_replica"])

"""`doctor` on real servers: what it finds, what it leaves alone, and what the command returns."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
import redis

from changeover import Client, Operator, Report, SyncOperator
from changeover.cli import main
from changeover_shared._results import WorkerInfo
from changeover_shared._store.keys import route_of
from changeover_shared._store.records import EVERYBODY, Crowd, Memory
from tests.client.conftest import World
from tests.support.fleet import small_settings
from tests.support.scripted_app import app
from tests.support.servers import SERVERS, flush, running_server
from tests.support.working import own_fleet, working

real = pytest.mark.parametrize("world", SERVERS, indirect=True)
one_real = pytest.mark.parametrize("world", SERVERS[:1], indirect=True)

LAX = {"redis_no_aof", "redis_no_maxmemory"}
"""What these tests' own servers are warned about."""


async def wrong(world: World, *, deep: bool = False) -> dict[str, tuple[str, str, str | None]]:
    """Code -> (level, text, remedy) of everything that is not ok."""
    report = await world.client.doctor(deep=deep)
    return {
        one.code: (one.level, one.text, one.remedy)
        for one in report.findings
        if one.level != "ok" and one.code not in LAX
    }


async def registered(world: World, **given: Any) -> None:
    """A worker of the queue `assistant`, as it says itself."""
    now_ms = await world.stores.producer.read_time()
    told = {"queues": ("assistant",), "renewed_at_ms": now_ms, "agents": ("assistant",), **given}
    await world.stores.worker.register("w:aa", WorkerInfo(worker="w", incarnation="w:aa", **told))


@real
async def test_a_served_fleet_is_in_order_and_nothing_is_changed(world: World) -> None:
    await world.client.submit("web:1", "hello")
    await world.acting.answer("web:1", "Hello.")
    await registered(world)
    before = await world.stores.dump()
    for deep in (False, True):
        assert await wrong(world, deep=deep) == {}
    assert await world.stores.dump() == before


@real
async def test_where_there_is_no_fleet_none_is_created(world: World) -> None:
    assert world.url is not None
    settings = small_settings(prefix="elsewhere")
    before = await world.stores.dump()
    operator = Operator(world.url, settings=settings)
    report = await operator.doctor(deep=True)
    assert "no_fleet" in {one.code for one in report.findings}
    assert await world.stores.dump() == before


@one_real
async def test_the_sync_twin_says_the_same(world: World) -> None:
    assert world.url is not None
    await world.client.submit("web:1", "hello")
    with SyncOperator(world.url, settings=world.settings) as operator:
        for deep in (False, True):
            mine, other = await world.client.doctor(deep=deep), operator.doctor(deep=deep)
            codes = [(one.level, one.code, one.remedy) for one in mine.findings]
            assert codes == [(one.level, one.code, one.remedy) for one in other.findings]


@one_real
async def test_a_queue_that_nobody_serves_is_an_error(world: World) -> None:
    await world.client.submit("web:1", "hello", agent="other")
    await registered(world)
    level, text, remedy = (await wrong(world))["no_worker_for_queue"]
    assert (level, remedy) == ("fail", "changeover worker APP -q other")
    assert "1 session of queue other waits and" in text
    assert "web:1" in text
    await registered(world, queues=("assistant", "other"))
    assert await wrong(world) == {}


@one_real
async def test_a_worker_that_is_not_heard_from_is_named(world: World) -> None:
    await registered(world, renewed_at_ms=1)
    assert "worker w has not been heard of" in (await wrong(world))["worker_silent"][1]


@one_real
async def test_what_nobody_reaps_is_an_error_while_nobody_runs(world: World) -> None:
    """A lease that ended and a session that was due, long ago."""
    await world.client.submit("web:1", "hello")
    await world.acting.take("web:1")
    await world.client.submit("web:2", "hello")
    await world.acting.answer("web:2", "Hello.")
    for name, session in (("leases", "web:1"), ("timers", "web:2")):
        at = world.stores.producer.keys.of(session)
        await world.stores.executor.command("ZADD", at.named(name), 1, session)
    told = await wrong(world)
    assert told["leases_not_reaped"][0] == told["timers_overdue"][0] == "fail"
    assert told["timers_overdue"][2] == "changeover worker APP"
    await registered(world)
    told = await wrong(world)
    assert told["leases_not_reaped"][0] == told["timers_overdue"][0] == "warn"


@one_real
async def test_a_lease_beyond_the_longest_is_a_step_of_the_clock(world: World) -> None:
    await world.client.submit("web:1", "hello")
    await world.acting.take("web:1")
    at = world.stores.producer.keys.of("web:1")
    await world.stores.executor.command("ZADD", at.named("leases"), 4_000_000_000_000, "web:1")
    assert "web:1" in (await wrong(world))["leases_too_long"][1]


@one_real
async def test_partitions_that_refuse_messages_are_counted(world: World) -> None:
    await registered(world)
    await world.client.submit("web:1", "hello")
    await world.stores.worker.say_pressure([0, 2], Memory(9, 10), span_ms=60_000)
    assert "2 of 4 partitions" in (await wrong(world))["messages_refused"][1]
    await world.stores.worker.say_pressure([0, 2], None, span_ms=60_000)
    assert await wrong(world) == {}


@one_real
async def test_who_has_as_many_submissions_waiting_as_may_is_told_once(world: World) -> None:
    await registered(world)
    await world.client.submit("web:1", "hello")
    for partition in (0, 2):
        crowded = (Crowd("acme", 12, 10), Crowd(EVERYBODY, 99, 90))
        await world.stores.worker.say_full(partition, crowded, span_ms=60_000)
    found = [one for one in (await world.client.doctor()).findings if one.code == "inbox_full"]
    assert [one.text.partition(" wait")[0] for one in found] == [
        "99 submissions of the fleet",
        "12 submissions of tenant acme",
    ]
    assert found[1].remedy is not None
    assert "CHANGEOVER_TENANT_INBOX" in found[1].remedy


@one_real
async def test_a_paused_queue_is_told_with_who_and_why(world: World) -> None:
    await registered(world)
    await world.client.submit("web:1", "hello")
    await world.client.pause("assistant", reason="outage", by="ops")
    level, text, remedy = (await wrong(world))["queue_paused"]
    assert (level, remedy) == ("warn", "changeover resume assistant")
    assert text.startswith("queue assistant is paused by ops") and text.endswith("ago: outage")


@one_real
async def test_quarantined_sessions_are_named(world: World) -> None:
    await world.client.submit("web:1", "hello")
    at = world.stores.producer.keys.of("web:1")
    await world.stores.executor.command("ZADD", at.named("quarantine"), 1, "web:1")
    level, text, remedy = (await wrong(world))["quarantined"]
    assert level == "warn"
    assert remedy == "changeover quarantine says why, changeover redrive lets them go on"
    assert "web:1" in text


@one_real
async def test_a_session_in_two_indexes_and_an_entry_of_none_are_errors(world: World) -> None:
    await world.client.submit("web:1", "hello")
    at = world.stores.producer.keys.of("web:1")
    await world.stores.executor.command("ZADD", at.named("timers"), 4_000_000_000_000, "web:1")
    await world.stores.executor.command("ZADD", at.ready(route_of("assistant")), 1, "ghost")
    told = await wrong(world)
    assert "web:1" in told["in_two_indexes"][1]
    key = at.ready(route_of("assistant"))
    assert told["entry_without_session"][2] == f"redis-cli ZREM '{key}' 'ghost'"


@one_real
async def test_settings_and_partitions_that_are_not_the_fleet_s_are_said(world: World) -> None:
    assert world.url is not None
    operator = Operator(world.url, settings=small_settings(partitions=8, max_inbox=3))
    codes = {one.code: one.remedy for one in (await operator.doctor()).findings}
    assert codes["partition_mismatch"] == "unset CHANGEOVER_PARTITIONS"
    assert codes["settings_differ"] == "unset CHANGEOVER_MAX_INBOX"


@one_real
async def test_a_partition_of_another_universe_is_an_error(world: World) -> None:
    await world.client.submit("web:1", "hello")
    at = world.stores.producer.keys.of("web:1")
    await world.stores.executor.command("HSET", at.named("meta"), "P", 9)
    assert "was made for 9 partitions" in (await wrong(world))["partition_mismatch"][1]


@pytest.mark.parametrize("kind", SERVERS)
async def test_what_the_server_forbids_could_not_be_seen(kind: str) -> None:
    """As a managed server does."""
    with running_server(kind) as url:
        with closing(redis.Redis.from_url(url)) as client:
            allowed = ["+@all", "-config", "-memory"]
            client.acl_setuser("blind", enabled=True, passwords=["+pw"], keys=["*"],
                               commands=allowed)  # fmt: skip
        settings = small_settings()
        async with Operator(url, settings=settings) as first:
            await first.submit("web:1", "hello")
        operator = Operator(url.replace("redis://", "redis://blind:pw@"), settings=settings)
        report = await operator.doctor(deep=True)
    unseen = [one.text for one in report.findings if one.code == "not_seen"]
    assert len(unseen) == 1
    assert "CONFIG GET is not permitted" in unseen[0]
    (line,) = [one.text for one in report.findings if one.code == "deep"]
    assert line == "1 session · 16 keys · no key without an owner, every index agrees"


async def test_a_deep_look_beside_a_fleet_at_work_finds_nothing() -> None:
    """Sessions are claimed, streamed, released, deleted and begun again meanwhile."""
    with running_server("valkey") as url:
        told = own_fleet(agent="assistant")
        async with working(app, told, url), Client(url, settings=told) as client:

            async def busy(name: str) -> None:
                for n in range(40):
                    receipt = await client.submit(f"{name}:{n % 3}", "hello")
                    if n % 4:
                        await client.wait(f"{name}:{n % 3}", receipt.submission_id)
                    else:
                        await client.delete(f"{name}:{n % 3}")

            tasks = [asyncio.create_task(busy(f"web:{n}")) for n in range(6)]
            looks, operator = 0, Operator(url, settings=told)
            while looks < 3 or not all(task.done() for task in tasks):
                report = await operator.doctor(deep=True)
                assert [one for one in report.findings if one.level == "fail"] == []
                looks += 1
            await asyncio.gather(*tasks)


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run_it(*args: str) -> tuple[int, str, str]:
        code = main(args)
        out, err = capsys.readouterr()
        return code, out, err

    return run_it


def test_the_command_says_what_to_type_and_returns_1_for_an_error(run: Run) -> None:
    with running_server("valkey", ["--appendonly", "yes", "--maxmemory", "1gb"]) as url:
        code, out, err = run("doctor", "--redis", url)
        assert (code, err) == (0, "")
        assert out.splitlines()[0].startswith("ok    valkey ")
        with closing(redis.Redis.from_url(url)) as client:
            client.config_set("maxmemory-policy", "allkeys-lru")
        code, out, err = run("doctor", "--redis", url)
        (line,) = [line for line in out.splitlines() if line.startswith("FAIL")]
        text, _, remedy = line.partition("  -> ")
        assert text.startswith("FAIL  maxmemory-policy is allkeys-lru: Redis may delete")
        assert remedy == "CONFIG SET maxmemory-policy noeviction"
        assert (code, err) == (1, "")


def test_the_json_of_the_command_is_one_object(run: Run) -> None:
    with running_server("valkey", ["--appendonly", "yes", "--maxmemory", "1gb"]) as url:
        flush(url)
        with SyncOperator(url) as operator:
            operator.submit("web:1", "hello")
        code, out, err = run("doctor", "--deep", "--json", "--redis", url)
    told = json.loads(out)
    assert (code, err, out.count("\n")) == (1, "", 1)
    assert set(told) == {"verdict", "deep", "findings"}
    assert (told["verdict"], told["deep"]) == ("fail", True)
    assert {frozenset(one) for one in told["findings"]} == {
        frozenset({"level", "code", "text", "remedy"})
    }
    assert [(one["level"], one["code"]) for one in told["findings"]] == [
        ("ok", "server"), ("ok", "fleet"), ("fail", "no_worker_for_queue"), ("ok", "deep"),
    ]  # fmt: skip
    assert Report.model_validate(told).verdict == "fail"


def test_a_server_that_does_not_answer_is_no_finding(run: Run) -> None:
    code, out, err = run("doctor", "--redis", "redis://127.0.0.1:1")
    assert (code, out) == (5, "")
    assert "no Redis answers at redis://127.0.0.1:1/0" in err

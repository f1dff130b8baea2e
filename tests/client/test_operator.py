"""What an operator sees of the fleet."""

from __future__ import annotations

import pytest

from changeover import UnknownSession
from changeover_shared._results import QueueActivity, WorkerInfo
from changeover_shared._store.keys import route_of
from changeover_shared._store.records import EVERYBODY, Crowd, Memory
from tests.client.conftest import World


async def test_workers_are_listed_by_name_and_one_that_missed_its_renewals_is_silent(
    world: World,
) -> None:
    assert await world.client.workers() == ()
    now = await world.stores.producer.now_ms()
    renewals = world.settings.renew.total_seconds() * 1000
    for name, state, age in (("b", "draining", 0), ("a", "running", 0), ("c", "running", 3)):
        info = WorkerInfo(
            worker=name,
            incarnation=f"{name}:1",
            state=state,
            renewed_at_ms=round(now - age * renewals),
        )
        await world.stores.worker.register(info.incarnation, info)
    seen = await world.client.workers()
    assert [(w.worker, w.state) for w in seen] == [
        ("a", "running"),
        ("b", "draining"),
        ("c", "silent"),
    ]


async def test_a_session_is_explained_from_what_lies_in_redis(world: World) -> None:
    with pytest.raises(UnknownSession):
        await world.client.explain("web:1")
    await world.client.submit("web:1", "one")
    assert (await world.client.explain("web:1")).code == "no_worker_for_queue"
    await _register(world, agents=("other",))
    assert (await world.client.explain("web:1")).code == "no_worker_for_agent"
    await _register(world, agents=("assistant",))
    ready = await world.client.explain("web:1")
    assert (ready.code, ready.facts["position"]) == ("waiting_for_slot", 1)
    held = await world.acting.take("web:1")
    running = await world.client.explain("web:1")
    assert (running.code, running.facts["holder"]) == ("running", world.acting.incarnation)
    await held.start()
    await held.complete("Hello.")
    assert (await world.client.explain("web:1")).code == "idle"


async def test_a_session_that_takes_no_messages_says_why(world: World) -> None:
    await world.client.submit("web:1", "one")
    await world.acting.answer("web:1", "Hello.")
    await world.client.submit("web:2", "two")
    everywhere = range(world.stores.producer.keys.partitions)
    crowded = (Crowd("other", 9, 9), Crowd(EVERYBODY, 99, 90))
    for partition in everywhere:
        await world.stores.worker.say_full(partition, crowded, span_ms=60_000)
    said = await world.client.explain("web:1")
    assert (said.code, said.facts["refuses"]) == ("idle", ["fleet"])
    assert "99 submissions of the fleet wait and 90 may" in said.text
    waits = await world.client.explain("web:2")
    assert (waits.code, waits.facts["refuses"]) == ("no_worker_for_queue", ["fleet"])
    await world.stores.worker.say_pressure(everywhere, Memory(9, 10), span_ms=60_000)
    said = await world.client.explain("web:1")
    assert (said.code, said.facts["refuses"]) == ("redis_full", ["fleet", "memory"])


async def test_queues_say_what_waits_runs_and_stands_still(world: World) -> None:
    assert await world.client.queues() == ()
    await world.client.submit("web:1", "one")
    await world.client.submit("web:2", "two")
    await world.acting.take("web:2")
    await world.client.submit("web:3", "three")
    await world.acting.answer("web:3", "Hello.")
    await world.client.submit("t:1", "four", queue="triage")
    await world.client.submit("t:2", "five", queue="triage")
    await world.client.delete("t:2")
    await _register(world, agents=("assistant",))
    await world.client.pause("later", reason="not yet")
    first, later, triage = await world.client.queues()
    assert (first.queue, first.state) == ("assistant", "open")
    assert (first.ready, first.running, first.parked, first.workers) == (1, 1, 0, 1)
    assert (first.turns_per_minute, later.turns_per_minute, triage.turns_per_minute) == (24, 0, 0)
    assert first.oldest_ms is not None and first.oldest_ms >= 0
    assert (later.queue, later.state, later.ready) == ("later", "paused", 0)
    assert later.paused is not None and later.paused.reason == "not yet"
    assert (triage.ready, triage.workers, triage.oldest_ms is None) == (1, 0, False)


async def test_a_paused_queue_says_by_whom_and_goes_on_when_it_is_resumed(world: World) -> None:
    await world.client.submit("web:1", "one")
    await world.client.pause("assistant", reason="provider outage", by="ops")
    await world.client.pause("assistant", reason="provider outage", by="ops")
    (told,) = await world.client.queues()
    assert told.state == "paused"
    assert told.paused is not None and told.paused.by == "ops"
    said = await world.client.explain("web:1")
    assert (said.code, said.remedy) == ("queue_paused", "changeover resume assistant")
    assert await world.client.resume("assistant")
    assert not await world.client.resume("assistant")
    (told,) = await world.client.queues()
    assert (told.state, told.paused) == ("open", None)
    bell = world.stores.producer.keys.bell(route_of("assistant"))
    rung = await world.stores.executor.command("ZCARD", bell)
    assert rung == world.stores.producer.keys.partitions


async def test_a_pause_that_did_not_reach_every_partition_is_seen(world: World) -> None:
    await world.client.pause("assistant")
    meta = world.stores.producer.keys.all[0].named("meta")
    await world.stores.executor.command("HDEL", meta, "paused:assistant")
    (told,) = await world.client.queues()
    assert told.state == "partly_paused"


async def _register(world: World, *, agents: tuple[str, ...]) -> None:
    info = WorkerInfo(
        worker="a",
        incarnation=world.acting.incarnation,
        queues=("assistant",),
        agents=agents,
        slots=10,
        activity={"assistant": QueueActivity(turns=100, recent_turns=12)},
        recent_ms=30_000,
        renewed_at_ms=await world.stores.producer.now_ms(),
    )
    await world.stores.worker.register(info.incarnation, info)


async def test_what_steps_aside_for_its_tenant_is_ready_like_the_others(world: World) -> None:
    """It was counted as nothing at all: a flooded tenant had an empty queue."""
    for session in ("web:1", "web:2"):
        await world.client.submit(session, "hello")
    await world.stores.worker.defer("web:1", route_of("assistant"), span_ms=1500, reason="tenant")
    (told,) = await world.client.queues()
    assert told.ready == 2
    assert told.oldest_ms is not None
    assert (await world.client.session("web:1")).status == "ready"
    listed = await world.client.sessions(status="ready")
    assert {one.session_id for one in listed.items} == {"web:1", "web:2"}
    await world.client.submit("web:3", "hello", delay="1h")
    assert (await world.client.session("web:3")).status == "idle"
    (told,) = await world.client.queues()
    assert told.ready == 2

"""What an operator sees of the fleet."""

from __future__ import annotations

import pytest

from changeover import UnknownSession
from changeover_shared._results import WorkerInfo
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


async def _register(world: World, *, agents: tuple[str, ...]) -> None:
    info = WorkerInfo(
        worker="a",
        incarnation=world.acting.incarnation,
        queues=("assistant",),
        agents=agents,
        slots=10,
        renewed_at_ms=await world.stores.producer.now_ms(),
    )
    await world.stores.worker.register(info.incarnation, info)

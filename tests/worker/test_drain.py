"""`drain` and `evict` as an operator meets them, with real workers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from changeover import (
    Client,
    DrainProgress,
    Invalid,
    Operator,
    SyncOperator,
    UnknownWorker,
    WorkerInfo,
)
from changeover._drain import chosen, progress
from changeover_shared._results import Draining
from changeover_shared._settings import Settings
from changeover_shared._store.lease_store import LeaseStore
from changeover_shared._store.records import Order
from tests.support.doors import Door
from tests.support.servers import running_server
from tests.support.working import eventually, eventually_found, own_fleet, working


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_server() as url:
        yield url


@asynccontextmanager
async def fleet(url: str, **given: str) -> AsyncIterator[tuple[Settings, Operator, LeaseStore]]:
    """A fleet's settings, its operator, and its store as a worker sees it."""
    settings = own_fleet(**given)
    store = await LeaseStore.open(url, settings)
    async with Operator(url, settings=settings) as operator:
        yield settings, operator, store
    await store.aclose()


async def registered(store: LeaseStore, count: int = 1) -> None:
    """Wait until so many workers are registered."""

    async def are() -> bool:
        return len(await store.registry()) == count

    await eventually_found(are, f"{count} workers are registered")


async def holds(door: Door, client: Client, count: int) -> None:
    """Have the workers of a door hold so many sessions whose model is asked."""
    for n in range(count):
        await client.submit(f"slow:{n}", "hello", agent="slow")
    await eventually(lambda: len(door.waiting) == count, f"{count} models are asked")


async def test_a_worker_hands_its_sessions_off_and_says_how_far_it_is(url: str) -> None:
    first, second = Door(), Door()
    async with (
        fleet(url) as (settings, operator, store),
        working(first.app(), settings, url, name="a") as at,
    ):
        await holds(first, operator, 3)
        await registered(store)
        seen: list[DrainProgress] = []
        async with working(second.app(), settings, url, name="b"):
            async for one in operator.drain("a", grace="60s"):
                seen.append(one)
                if one.state == "draining":
                    (info,) = [w for w in await operator.workers() if w.worker == "a"]
                    assert info.state == "draining"
                    assert info.draining is not None
                    first.open.set()
            assert not (await at.task).forced
            second.open.set()
            for n in range(3):
                receipt = await operator.submit(f"slow:{n}", "more", agent="slow")
                await operator.wait(f"slow:{n}", receipt.submission_id)
        assert [one.state for one in (seen[0], seen[1], seen[-1])] == [
            "asked",
            "draining",
            "drained",
        ]
        last = seen[-1]
        assert (last.worker, last.incarnation) == ("a", at.worker.incarnation)
        assert (last.sessions, last.handed_off, last.forced) == (3, 3, 0)
        assert (last.grace_ms, at.logged("drain_started")[0]["sessions"]) == (60_000, 3)


async def test_what_does_not_reach_a_boundary_within_the_grace_is_cut_off(url: str) -> None:
    door = Door()
    async with fleet(url) as (settings, operator, store):
        async with working(door.app(), settings, url, name="a") as at:
            await holds(door, operator, 2)
            await registered(store)
            last = [one async for one in operator.drain("a", grace="50ms")][-1]
            assert (last.state, last.handed_off, last.forced) == ("drained", 2, 2)
            # A drain that outlasts its grace is still a drain.
            assert not (await at.task).forced
            assert at.logged("drained")[0]["forced"] == 2
        head = await store.read_head("slow:0")
        assert head is not None
        assert (head.status.value, head.attempts) == ("ready", 0)


async def test_a_shorter_grace_counts_and_a_signal_after_an_order_is_the_first(url: str) -> None:
    door = Door()
    async with (
        fleet(url) as (settings, operator, store),
        working(door.app(), settings, url, name="a") as at,
    ):
        await holds(door, operator, 1)
        await registered(store)
        assert await anext(operator.drain("a", grace="1h")) is not None
        await at.has_logged("drain_started")
        at.worker.drain("SIGTERM")
        await registered(store)
        assert not at.task.done()
        last = [one async for one in operator.drain("a", grace="10ms")][-1]
        assert (last.state, last.forced) == ("drained", 1)
        assert not (await at.task).forced


async def test_a_second_signal_hands_off_now_also_after_an_order(url: str) -> None:
    door = Door()
    async with (
        fleet(url) as (settings, operator, store),
        working(door.app(), settings, url, name="a") as at,
    ):
        await holds(door, operator, 1)
        await registered(store)
        await anext(operator.drain(grace="1h"))
        await at.has_logged("drain_started")
        at.worker.drain("SIGTERM")
        at.worker.drain("SIGTERM")
        assert (await at.task).forced


async def test_an_idle_and_a_paused_worker_hear_an_order(url: str) -> None:
    async with (
        fleet(url) as (settings, operator, store),
        working(Door().app(), settings, url, name="a"),
        working(Door().app(), settings, url, name="b") as b,
    ):
        b.worker.pause()
        await registered(store, 2)
        ends = {one.worker: one.state async for one in operator.drain()}
        assert ends == {"a": "drained", "b": "drained"}


async def test_only_one_build_is_drained_and_a_successor_of_the_name_is_not_meant(
    url: str,
) -> None:
    async with fleet(url) as (settings, operator, store):
        old = settings.model_copy(update={"build": "1.4"})
        new = settings.model_copy(update={"build": "1.5"})
        async with (
            working(Door().app(), old, url, name="a") as first,
            working(Door().app(), new, url, name="b") as other,
        ):
            await registered(store, 2)
            with pytest.raises(UnknownWorker, match=r"build '1\.3'"):
                await anext(operator.drain(build="1.3"))
            assert {one.worker async for one in operator.drain(build="1.4")} == {"a"}
            await first.task
            async with working(Door().app(), new, url, name="a") as successor:
                await registered(store, 2)
                assert await store.read_order(successor.worker.incarnation) is None
                assert not successor.task.done()
                assert not other.task.done()


async def test_a_worker_that_is_declared_dead_and_lives_stops_and_is_refused(url: str) -> None:
    door, second = Door(), Door()
    async with (
        fleet(url) as (settings, operator, store),
        working(door.app(), settings, url, name="a") as at,
    ):
        await holds(door, operator, 2)
        await registered(store)
        evicted = await operator.evict("a")
        assert (evicted.worker, evicted.sessions) == ("a", 2)
        assert evicted.incarnation == at.worker.incarnation
        second.open.set()
        async with working(second.app(), settings, url, name="b"):
            # The code of a process that is to be replaced.
            assert (await at.task).forced
            for n in range(2):
                receipt = await operator.submit(f"slow:{n}", "more", agent="slow")
                await operator.wait(f"slow:{n}", receipt.submission_id)
                until = receipt.submission_id
                events = [one async for one in operator.follow(f"slow:{n}", after=0, until=until)]
                kinds = [one.type for one in events]
                assert kinds.count("turn_completed") == 2
                assert kinds.count("worker_changed") == 1
                fences = [one.fence for one in events if one.fence]
                assert fences == sorted(fences)
        assert at.logged("drain_started")[0]["reason"] == "declared dead by an operator"


async def test_who_is_not_registered_is_neither_drained_nor_evicted(url: str) -> None:
    async with fleet(url) as (_, operator, _):
        with pytest.raises(UnknownWorker, match="no worker 'a'"):
            await anext(operator.drain("a"))
        for name in ("a", "a:0000000f"):
            with pytest.raises(UnknownWorker):
                await operator.evict(name)
        assert [one async for one in operator.drain()] == []
        with pytest.raises(Invalid, match="not both"):
            operator.drain("a", build="b")
        with pytest.raises(Invalid, match="grace"):
            operator.drain("a", grace="soon")


async def test_of_several_processes_of_a_name_one_must_be_named(url: str) -> None:
    async with fleet(url) as (_, operator, store):
        for boot in ("0000000a", "0000000b"):
            info = WorkerInfo(worker="a", incarnation=f"a:{boot}")
            await store.register(info.incarnation, info)
        with pytest.raises(Invalid, match=r"a:0000000a \(silent\), a:0000000b"):
            await operator.evict("a")
        assert (await operator.evict("a:0000000b")).sessions == 0
        assert [one.incarnation for one in await operator.workers()] == ["a:0000000a"]


async def test_a_silent_worker_is_told_and_said_to_be_silent(url: str) -> None:
    async with fleet(url) as (_, operator, store):
        info = WorkerInfo(worker="a", incarnation="a:0000000a", renewed_at_ms=1)
        await store.register(info.incarnation, info)
        assert [one.state async for one in operator.drain("a")] == ["asked", "silent"]
        order = await store.read_order(info.incarnation)
        assert order is not None
        assert order.drained is None


async def test_the_synchronous_operator_drains_and_evicts(url: str) -> None:
    async with fleet(url) as (settings, _, store):
        async with working(Door().app(), settings, url, name="a") as at:
            await registered(store)

            def drains() -> list[str]:
                with SyncOperator(url, settings=settings) as twin:
                    return [one.state for one in twin.drain("a")]

            assert (await asyncio.to_thread(drains))[-1] == "drained"
            await at.task

        def evicts() -> None:
            with SyncOperator(url, settings=settings) as twin:
                twin.evict("a")

        with pytest.raises(UnknownWorker):
            await asyncio.to_thread(evicts)


def test_workers_are_chosen_by_name_incarnation_and_build() -> None:
    a1, a2, b = (
        WorkerInfo(worker=name, incarnation=f"{name}:{boot}", build=build)
        for name, boot, build in (("a", 1, "x"), ("a", 2, "y"), ("b", 1, "x"))
    )
    everybody = (a1, a2, b)
    assert chosen(everybody, "a", None) == (a1, a2)
    assert chosen(everybody, "a:2", None) == (a2,)
    assert chosen(everybody, None, "x") == (a1, b)
    assert chosen(everybody, None, None) == everybody
    assert chosen((), None, None) == ()


def test_progress_is_read_from_the_registry_and_from_the_answer() -> None:
    before = DrainProgress(worker="a", incarnation="a:1", state="asked", sessions=3)
    running = WorkerInfo(worker="a", incarnation="a:1")
    assert progress(before, running, Order(), missing_ms=0) == before
    drains = running.model_copy(
        update={"state": "draining", "draining": Draining(sessions=4, left=1, grace_ms=5)}
    )
    after = progress(before, drains, Order(), missing_ms=0)
    assert (after.state, after.sessions, after.handed_off, after.grace_ms) == ("draining", 4, 3, 5)
    assert progress(after, None, Order(), missing_ms=1_999) == after
    assert progress(after, None, Order(), missing_ms=2_000).state == "gone"
    silent = running.model_copy(update={"state": "silent"})
    assert progress(after, silent, None, missing_ms=0).state == "silent"
    done = Order(drained=Draining(sessions=4, left=1, forced=2))
    drained = progress(after, None, done, missing_ms=0)
    assert (drained.state, drained.handed_off, drained.forced) == ("drained", 3, 2)

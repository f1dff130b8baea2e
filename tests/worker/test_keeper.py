from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass
from typing import Any

import pytest
from structlog.testing import LogCapture

from changeover import Client
from changeover_shared._errors import Busy, LeaseExpired, LeaseGone, LeaseLost, StoreUnavailable
from changeover_shared._identifiers import new_incarnation
from changeover_shared._results import WorkerInfo
from changeover_shared._server.connect import sync_client
from changeover_shared._server.url import parse_url
from changeover_shared._settings import Settings
from changeover_shared._store.lease_store import LeaseStore
from changeover_shared._store.records import Commit
from changeover_shared._words import CommitKind, GiveUp
from changeover_worker._process.keeper import LeaseKeeper, trust
from changeover_worker._process.outage import Outage
from changeover_worker._process.permits import Permits
from changeover_worker._process.summons import Summons
from changeover_worker._process.vitals import Vitals
from changeover_worker._session.held import Held
from tests.support.servers import RunningServer, free_port, running_server, server_process
from tests.support.working import capture, eventually, eventually_found, own_fleet, take

SHORT = {"lease": "3s", "renew": "300ms", "margin": "300ms"}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_server() as url:
        yield url


@dataclass
class Keeping:
    """A keeper, a store, and a session that is held."""

    keeper: LeaseKeeper
    store: LeaseStore
    settings: Settings
    incarnation: str
    entries: LogCapture

    async def hold(self, session_id: str = "s:1") -> Held:
        """Create a session, take it, and let it be kept."""
        async with Client(self.url, settings=self.settings) as client:
            await client.submit(session_id, "hello")
        asked_at = time.monotonic()
        ttl_ms = round(self.settings.lease.total_seconds() * 1000)
        grant = await take(self.store, session_id, self.incarnation, ttl_ms=ttl_ms)
        partition = self.store.keys.of(session_id).partition
        believed = trust(asked_at, grant.remaining_ms, self.settings.margin.total_seconds())
        held = Held(grant.lease, partition, trusted_until=believed)
        self.keeper.add(held)
        return held

    url: str = ""

    async def remaining_ms(self, held: Held) -> int:
        """How long the lease still runs, on Redis's clock."""
        at = self.store.keys.all[held.partition].named("leases")
        score = await self.store.executor.command("ZSCORE", at, held.lease.session_id)
        return int(score) - await self.now_ms()

    async def now_ms(self) -> int:
        seconds, micros = await self.store.executor.command("TIME")
        return int(seconds) * 1000 + int(micros) // 1000


@asynccontextmanager
async def keeping(url: str, **given: Any) -> AsyncIterator[Keeping]:
    """A keeper that runs."""
    settings = own_fleet(**{**SHORT, **given})
    incarnation = new_incarnation("w")
    log, entries = capture()
    store = await LeaseStore.open(url, settings)
    keeper = LeaseKeeper(
        url,
        settings,
        incarnation=incarnation,
        describe=lambda: WorkerInfo(worker="w", incarnation=incarnation, queues=("assistant",)),
        outage=Outage(log),
        vitals=Vitals(lag_limit_s=60.0, log=log),
        permits=Permits(settings),
        summons=Summons(incarnation, heed=lambda order: None),
        deaf=lambda: False,
        log=log,
    )
    await keeper.start()
    try:
        yield Keeping(keeper, store, settings, incarnation, entries, url)
    finally:
        await keeper.stop()
        await store.aclose()


async def test_a_lease_is_renewed_and_its_trust_with_it(url: str) -> None:
    async with keeping(url) as at:
        held = await at.hold()
        first = held.trusted_until
        await eventually(lambda: held.trusted_until > first + 1, "trust grew by a second")
        assert await at.remaining_ms(held) > 2_000
        assert held.lost is None


async def test_a_blocked_loop_does_not_starve_renewal(url: str) -> None:
    async with keeping(url) as at:
        held = await at.hold()
        time.sleep(4)  # noqa: ASYNC251 - blocking longer than the lease lasts is what is tested
        assert held.trusted_until > time.monotonic()
        assert await at.remaining_ms(held) > 0
        await asyncio.sleep(0)
        assert held.lost is None


async def test_trust_ends_before_the_lease_does(url: str) -> None:
    async with keeping(url) as at:
        held = await at.hold()
        believed_ms = (held.trusted_until - time.monotonic()) * 1000
        assert believed_ms < await at.remaining_ms(held)


async def test_a_control_that_waits_reaches_the_session(url: str) -> None:
    async with keeping(url) as at:
        held = await at.hold()
        alerts = at.store.keys.all[held.partition].named("alerts")
        await at.store.executor.command("HSET", alerts, held.lease.session_id, "5")
        await eventually(lambda: held.ctl_epoch == 5, "the alert")
        assert held.lost is None


@pytest.mark.parametrize("policy", [None, "interrupt", "rollback"])
async def test_an_interrupt_is_heard_of_long_before_the_next_renewal(url: str, policy: Any) -> None:
    """By a worker whose turn writes nothing; others in its partition are renewed, and no more."""
    async with keeping(url, lease="3h", renew="1h", margin="1s") as at:
        held = await at.hold()
        opened = Commit("k1", 0, "t_1", CommitKind.START, "{}", take=(1,))
        await at.store.commit(held.lease, opened)
        async with Client(url, settings=at.settings) as client:
            if policy is None:
                assert (await client.interrupt("s:1")).answer == "accepted"
            else:
                await client.submit("s:1", "stop", policy=policy)
        await eventually(lambda: held.interrupted, "the interrupt")
        assert held.lost is None


@pytest.mark.parametrize("policy", ["enqueue", "steer", "join", "latest", "reject"])
async def test_what_stops_nothing_raises_no_alarm(url: str, policy: Any) -> None:
    async with keeping(url, lease="3h", renew="1h", margin="1s") as at:
        held = await at.hold()
        opened = Commit("k1", 0, "t_1", CommitKind.START, "{}", take=(1,))
        await at.store.commit(held.lease, opened)
        async with Client(url, settings=at.settings) as client:
            with suppress(Busy):
                await client.submit("s:1", "more", policy=policy)
        assert await at.store.read_alarms() == {}


async def test_an_agents_default_may_stop_the_turn_and_is_told_of(url: str) -> None:
    async with keeping(url, lease="3h", renew="1h", margin="1s") as at:
        await at.store.tell_policies({"assistant": "interrupt"})
        held = await at.hold()
        opened = Commit("k1", 0, "t_1", CommitKind.START, "{}", take=(1,))
        await at.store.commit(held.lease, opened)
        async with Client(url, settings=at.settings) as client:
            await client.submit("s:1", "stop")
        await eventually(lambda: held.interrupted, "the interrupt")


async def test_an_evicted_session_is_stopped(url: str) -> None:
    async with keeping(url) as at:
        held = await at.hold()
        await at.store.evict(at.incarnation)
        await eventually(lambda: isinstance(held.lost, LeaseExpired), "stopped")


async def test_a_session_that_was_given_up_elsewhere_is_stopped(url: str) -> None:
    async with keeping(url) as at:
        held = await at.hold()
        await at.store.give_up(held.lease, GiveUp.HAND_OFF)
        await eventually(lambda: isinstance(held.lost, LeaseGone), "stopped")


async def test_a_session_that_another_worker_holds_is_stopped(url: str) -> None:
    async with keeping(url, renew="1s") as at:
        held = await at.hold()
        await at.store.give_up(held.lease, GiveUp.HAND_OFF)
        await take(at.store, "s:1", new_incarnation("other"), ttl_ms=30_000)
        await eventually(lambda: held.lost is not None, "stopped")
        assert isinstance(held.lost, LeaseLost)
        assert (held.lost.fence, held.lost.current) == (1, 2)


async def test_a_session_that_is_kept_no_more_is_left_alone(url: str) -> None:
    async with keeping(url) as at:
        held, other = await at.hold("s:1"), await at.hold("s:2")
        assert at.keeper.remove(held)
        assert not at.keeper.remove(held)
        until = held.trusted_until
        await eventually(lambda: other.trusted_until > until + 1, "the other one was renewed")
        assert held.trusted_until == until
        assert held.lost is None


async def test_a_grant_that_came_late_is_renewed_at_once(url: str) -> None:
    async with keeping(url, lease="120s", renew="40s", margin="1s") as at:
        held = await at.hold()
        at.keeper.remove(held)
        held.trusted_until = time.monotonic() + 30
        at.keeper.add(held)
        soon = held.trusted_until + 60
        await eventually(lambda: held.trusted_until > soon, "renewed within its first interval")


async def test_the_registry_knows_when_the_worker_renewed(url: str) -> None:
    async with keeping(url) as at:
        before = await at.now_ms()

        async def renewed() -> bool:
            found = await at.store.registry()
            return [one.incarnation for one in found if one.renewed_at_ms >= before] == [
                at.incarnation
            ]

        await eventually_found(renewed, "an entry that was renewed")


async def test_a_keeper_that_cannot_connect_says_so() -> None:
    with pytest.raises(StoreUnavailable):
        async with keeping(f"redis://127.0.0.1:{free_port()}/0"):
            pass


@asynccontextmanager
async def frozen(server: RunningServer) -> AsyncIterator[None]:
    """A server that keeps its connections and answers nothing."""
    server.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.process.send_signal(signal.SIGCONT)


async def test_a_session_is_stopped_in_time_while_redis_hangs() -> None:
    with server_process() as server:
        async with keeping(server.url) as at:
            held = await at.hold()
            async with frozen(server):
                await eventually(lambda: held.lost is not None, "stopped")
            assert isinstance(held.lost, LeaseExpired)


async def test_a_short_hang_of_redis_costs_no_session() -> None:
    with server_process() as server:
        async with keeping(server.url, lease="20s", renew="1s", margin="1s") as at:
            held = await at.hold()

            def logged(event: str) -> bool:
                return any(one["event"] == event for one in at.entries.entries)

            async with frozen(server):
                await eventually(lambda: logged("redis_lost"), "redis_lost")
            before = held.trusted_until
            await eventually(lambda: logged("redis_back"), "redis_back")
            await eventually(lambda: held.trusted_until > before, "renewed")
            assert held.lost is None


async def test_a_server_that_refuses_a_running_worker_is_an_outage() -> None:
    """A password that was rotated, a promoted replica without the user: a person mends it."""
    with running_server() as url, closing(sync_client(parse_url(url))) as operator:
        async with keeping(url, lease="20s", renew="1s", margin="1s") as at:
            await at.hold()

            def logged(event: str) -> bool:
                return any(one["event"] == event for one in at.entries.entries)

            operator.config_set("requirepass", "rotated")
            operator.client_kill_filter(_type="normal", skipme=True)
            await eventually(lambda: logged("redis_lost"), "redis_lost")
            assert not at.keeper.ended.done()
            operator.config_set("requirepass", "")
            await eventually(lambda: logged("redis_back"), "redis_back")
            assert not at.keeper.ended.done()

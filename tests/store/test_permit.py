"""`permit`: no more sessions of a tenant, or of a queue, than may run at once."""

from __future__ import annotations

import pytest

from changeover_shared._settings import Settings
from changeover_shared._store.keys import route_of
from changeover_shared._store.records import Caps, Create, Permit
from changeover_worker._process import permits
from changeover_worker._process.permits import Permits
from tests.support.driving import TTL_MS, Driver

TWO = Caps(tenant=2)


def key(drive: Driver, kind: str = "tenant", name: str = "acme") -> str:
    limits = drive.fleet.keys.limits
    return limits.permits("tenant", name) if kind == "tenant" else limits.permits("queue", name)


async def test_a_tenant_has_as_many_permits_as_it_may(drive: Driver) -> None:
    """Hole 43."""
    first, second, third = drive, drive.neighbour("b"), drive.neighbour("c")
    assert await first.permit(caps=TWO) == "GRANTED"
    assert await second.permit("n2", caps=TWO) == "GRANTED"
    async with drive.unchanged():
        assert await third.permit("n3", caps=TWO) == "tenant"
    assert await third.permit("n3", caps=TWO, tenant="other") == "GRANTED"
    await second.give_back("n2", caps=TWO)
    assert await third.permit("n3", caps=TWO) == "GRANTED"


async def test_a_queue_is_counted_beside_the_tenant_and_both_or_none_are_taken(
    drive: Driver,
) -> None:
    """Hole 43."""
    caps = Caps(tenant=2, queue=1)
    other = drive.neighbour("b")
    elsewhere = drive.neighbour("c", route_of("triage"))
    assert await drive.permit(caps=caps) == "GRANTED"
    async with drive.unchanged():
        assert await other.permit("n2", caps=caps) == "queue"
    assert await elsewhere.permit("n3", caps=caps) == "GRANTED"
    async with drive.unchanged():
        assert await drive.neighbour("d", route_of("chat")).permit("n4", caps=caps) == "tenant"


async def test_a_session_of_no_tenant_is_limited_by_its_queue_alone(drive: Driver) -> None:
    caps = Caps(tenant=1, queue=2)
    assert await drive.permit(caps=caps, tenant="") == "GRANTED"
    assert await drive.neighbour("b").permit("n2", caps=caps, tenant="") == "GRANTED"
    assert await drive.neighbour("c").permit("n3", caps=caps, tenant="") == "queue"


async def test_a_session_that_is_taken_over_counts_once(drive: Driver) -> None:
    """The dead holder's permit does not keep its own successor waiting."""
    assert await drive.permit("dead") == "GRANTED"
    assert await drive.permit("successor") == "GRANTED"
    assert await drive.neighbour("b").permit("n2") == "tenant"
    await drive.give_back("successor")
    assert await drive.neighbour("b").permit("n2") == "tenant"
    await drive.give_back("dead")
    assert await drive.neighbour("b").permit("n2") == "GRANTED"


async def test_two_permits_of_one_session_leave_its_tenant_the_other_place(drive: Driver) -> None:
    for nonce in ("dead", "successor"):
        assert await drive.permit(nonce, caps=TWO) == "GRANTED"
    assert await drive.neighbour("b").permit("n2", caps=TWO) == "GRANTED"
    assert await drive.neighbour("c").permit("n3", caps=TWO) == "tenant"


async def test_the_loser_of_a_race_takes_no_permit_from_the_winner(drive: Driver) -> None:
    """Hole 43: both asked for the session before either claimed it."""
    assert await drive.permit("winner") == await drive.permit("loser") == "GRANTED"
    await drive.give_back("loser")
    assert await drive.neighbour("b").permit("n2") == "tenant"


async def test_a_permit_ends_by_itself_and_its_key_with_the_last(drive: Driver) -> None:
    """Hole 43: what a crash leaves is bounded."""
    await drive.permit("n1", span_ms=TTL_MS)
    assert 0 < int(await drive.redis("PTTL", key(drive))) <= TTL_MS
    await drive.redis("ZADD", key(drive), 1, f"{drive.session}|n1")
    other = drive.neighbour("b")
    assert await other.permit("n2") == "GRANTED"
    assert await drive.redis("ZRANGE", key(drive), 0, -1) == [f"{other.session}|n2"]


async def test_asking_again_makes_a_permit_longer_and_never_shorter(drive: Driver) -> None:
    await drive.permit(span_ms=TTL_MS)
    first = float(await drive.redis("ZSCORE", key(drive), f"{drive.session}|n1"))
    await drive.permit(span_ms=2 * TTL_MS)
    second = float(await drive.redis("ZSCORE", key(drive), f"{drive.session}|n1"))
    assert second >= first + TTL_MS
    await drive.permit(span_ms=1)
    assert float(await drive.redis("ZSCORE", key(drive), f"{drive.session}|n1")) == second


async def test_a_batch_takes_what_is_left_in_its_order(drive: Driver) -> None:
    store = drive.stores.worker
    asked = [Permit(f"s{i}", "n1", "assistant", "acme") for i in range(4)]
    answers = await store.permit(asked, TWO, span_ms=TTL_MS)
    assert [one.full for one in answers] == ["", "", "tenant", "tenant"]
    again = await store.permit(asked, TWO, span_ms=TTL_MS)
    assert [one.full for one in again] == ["", "", "tenant", "tenant"]


async def test_what_steps_aside_says_why_until_it_is_granted(drive: Driver) -> None:
    """Hole 44."""
    await drive.submit("m1")
    await drive.stores.worker.defer(drive.session, drive.route, span_ms=1500, reason="tenant")
    assert (await drive.head())["deferred"] == "tenant"
    assert await drive.indexes() == {"timers"}
    await drive.set_head(not_before=1)
    await drive.reap()
    await drive.hold()
    assert "deferred" not in await drive.head()


async def test_a_process_extends_all_its_permits_in_calls_of_a_bounded_size(
    drive: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(permits, "AT_ONCE", 2)
    store, mine = drive.stores.worker, Permits(Settings(tenant_concurrency=9))
    sessions = [drive.neighbour(f"p{i}") for i in range(5)]
    for one in sessions:
        await one.submit("m1", create=Create(drive.route, "assistant", tenant="acme"))
    ids = [one.session for one in sessions]
    at = drive.partition.partition
    admitted = await mine.admit(store, at, drive.route, ids, nonce="n1", uniform=max)
    assert admitted.ids == tuple(ids)
    assert admitted.not_after_ms <= await drive.now() + 5_000
    soon = await drive.now() + 1_000
    for name in ids:
        await drive.redis("ZADD", key(drive), soon, f"{name}|n1")
    await mine.extend(store)
    assert [
        float(await drive.redis("ZSCORE", key(drive), f"{name}|n1")) > soon for name in ids
    ] == ([True] * 5)
    await mine.give_back(store, "n1", ids)
    assert await drive.redis("EXISTS", key(drive)) == 0


async def test_a_lease_is_renewed_only_while_its_permit_would_outlive_it(drive: Driver) -> None:
    """Hole 43."""
    store = drive.stores.worker
    mine = Permits(Settings(tenant_concurrency=1, lease="30s"))
    await drive.submit("m1", create=Create(drive.route, "assistant", tenant="acme"))
    at = drive.partition.partition
    await mine.admit(store, at, drive.route, [drive.session], nonce="n1", uniform=max)
    lease = await drive.hold(nonce="n1")
    assert mine.lasts(lease) and mine.tenant_of(lease) == "acme"
    ((permit, until),) = mine._kept.values()
    mine._kept[drive.session, "n1"] = permit, until - 36
    assert not mine.lasts(lease)
    await drive.redis("DEL", key(drive))
    await drive.neighbour("b").permit("n2")
    await mine.extend(store)
    assert not mine.lasts(lease), "another one came first"
    await drive.neighbour("b").give_back("n2")
    await mine.extend(store)
    assert mine.lasts(lease)

"""Which payload keys are still needed, counted over everything that is stored."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from changeover import Operator, PayloadKeyMissing
from changeover._client import Client
from changeover_worker._process.firing import Firing
from tests.client.conftest import World
from tests.support.acting import Acting
from tests.support.payload_keys import KeyFiles, joined
from tests.support.working import capture

OLD = "66687aadf862bd77"
NEW = "72cd6e8422c407fb"


async def operator(world: World, keys: KeyFiles, *names: str) -> tuple[Operator, Acting]:
    """An operator and a worker that have these keys."""
    settings = keys.settings(*names, agent="assistant")
    stores = await joined(world.stores, settings)
    client = Operator("redis://nowhere.invalid", settings=settings)
    client._store = stores.producer
    return client, Acting(stores.worker)


async def counted(client: Operator) -> Mapping[str | None, tuple[bool, int]]:
    """Key -> whether values need it, and in how many sessions."""
    return {one.key_id: (one.values > 0, one.sessions) for one in await client.payload_keys()}


async def talk(client: Client, acting: Acting, session: str) -> None:
    await client.submit(session, "hello", context={"chat": "7"})
    await acting.answer(session, "hello yourself")


async def test_a_fleet_that_does_not_encrypt_needs_no_key(world: World) -> None:
    assert await world.client.payload_keys() == ()
    await talk(world.client, world.acting, "s:1")
    assert await counted(world.client) == {None: (True, 1)}


async def test_a_key_is_needed_until_nothing_is_left_under_it(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever of a session it is, and however many pages that takes."""
    monkeypatch.setattr("changeover._payload_keys.LISTED", 2)
    monkeypatch.setattr("changeover_shared._store.upkeep.PAGE", 2)
    keys = KeyFiles(tmp_path)
    await talk(world.client, world.acting, "plain")
    old, worker = await operator(world, keys, "old")
    for n in range(4):
        await talk(old, worker, f"s:{n}")
    assert await counted(old) == {None: (True, 1), OLD: (True, 4)}
    both, worker = await operator(world, keys, "new", "old")
    await talk(both, worker, "s:3")
    await talk(both, worker, "s:4")
    assert await counted(both) == {None: (True, 1), OLD: (True, 4), NEW: (True, 2)}
    for n in range(4):
        await both.delete(f"s:{n}", reason="old")
    # What is left of them says why they were deleted, under the key of whoever deleted them.
    assert await counted(both) == {None: (True, 1), NEW: (True, 5)}


async def test_the_fleet_needs_the_key_that_joining_takes(world: World, tmp_path: Path) -> None:
    client, _ = await operator(world, KeyFiles(tmp_path), "old")
    (one,) = await client.payload_keys()
    assert (one.key_id, one.values, one.sessions) == (OLD, 1, 0)


async def test_a_session_that_cannot_be_read_hides_no_other(world: World, tmp_path: Path) -> None:
    keys = KeyFiles(tmp_path)
    old, worker = await operator(world, keys, "old")
    await talk(old, worker, "s:old")
    both, worker = await operator(world, keys, "new", "old")
    await talk(both, worker, "s:new")
    new, _ = await operator(world, keys, "new")
    listed = {one.session_id: one.context for one in (await new.sessions()).items}
    assert listed == {"s:new": {"chat": "7"}, "s:old": {}}
    with pytest.raises(PayloadKeyMissing):
        await new.session("s:old")
    assert (await new.purge(idle_for="0s")).sessions == ("s:new", "s:old")


async def test_a_schedule_needs_its_key_until_it_is_served(world: World, tmp_path: Path) -> None:
    """Then it is written anew, with the key that encrypts by then."""
    keys = KeyFiles(tmp_path)
    old, _ = await operator(world, keys, "old")
    kept = await old.schedule("daily", "s:1", "hello", every="1d")
    assert (await old.schedule("daily", "s:1", "hello", every="1d")).due_at_ms == kept.due_at_ms
    both = await joined(world.stores, keys.settings("new", "old", agent="assistant"))
    client, _ = await operator(world, keys, "new", "old")
    assert await counted(client) == {OLD: (True, 0), NEW: (True, 0)}
    await Firing(both.worker, capture()[0]).look(kept.due_at_ms)
    assert await counted(client) == {NEW: (True, 1)}
    (one,) = (await client.schedules()).items
    assert (one.text, one.due_at_ms) == ("hello", kept.due_at_ms + 86_400_000)


async def test_a_leader_without_the_key_leaves_a_schedule_to_others(
    world: World, tmp_path: Path
) -> None:
    keys = KeyFiles(tmp_path)
    old, _ = await operator(world, keys, "old")
    kept = await old.schedule("daily", "s:1", "hello", every="1d")
    await operator(world, keys, "new", "old")
    without = await joined(world.stores, keys.settings("new", agent="assistant"))
    log, entries = capture()
    await Firing(without.worker, log).look(kept.due_at_ms)
    assert [one["code"] for one in entries.entries] == ["payload_key_missing"]
    (one,) = (await old.schedules()).items
    assert (one.text, one.due_at_ms) == ("hello", kept.due_at_ms)
    assert await world.stores.producer.snapshot("s:1") is None


@pytest.mark.parametrize("kept", ["context", "prefix", "interrupt", "waiting"])
async def test_every_part_of_a_session_is_counted(world: World, tmp_path: Path, kept: str) -> None:
    """Each by itself: what else there is of the session is taken away."""
    client, worker = await operator(world, KeyFiles(tmp_path), "old")
    context = {"chat": "7"} if kept == "context" else {}
    await client.submit("s:1", "hello", context=context)
    held = await worker.take("s:1")
    await held.start()
    if kept == "waiting":
        await client.submit("s:1", "one more")
    if kept == "interrupt":
        await client.interrupt("s:1", reason="not now")
    at = world.stores.producer.keys.of("s:1")
    command = world.stores.executor.command
    if kept == "prefix":
        sealed = await command("HGET", at.session("s:1", "head"), "context")
        assert sealed == b"{}", "nothing is nothing"
        journal = await command("XREVRANGE", at.session("s:1", "journal"), "+", "-", "COUNT", 1)
        await command("HSET", at.session("s:1", "head"), "context_epoch", 2)
        await command("SET", at.context("s:1", 2), journal[0][1][-1])
    gone = ["journal", "checkpoint", "transcript", "turns"] + ["inbox"] * (kept != "waiting")
    await command("DEL", *(at.session("s:1", name) for name in gone))
    found = {one.key_id: one for one in await client.payload_keys()}
    assert found[OLD].sessions == 1
    assert found[OLD].values >= 2, "and the fleet's own"

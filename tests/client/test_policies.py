"""What callers say of a message that finds a turn running, and what they are told."""

from __future__ import annotations

from typing import Any

import pytest

from changeover import Busy, Debounce, Invalid, StoreUnavailable, Submission
from changeover_shared._store.agent_policies import AgentPolicies
from tests.client.conftest import World


async def work_of(world: World, session: str) -> list[tuple[str, str]]:
    """What waits, as (how it is taken, its key), in order."""
    work = await world.stores.worker.read_work(session)
    return [(one.kind, one.key) for one in work.waiting]


@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        ("enqueue", ("turn", "")),
        ("steer", ("steer", "")),
        ("join", ("join", "join")),
        ("latest", ("turn", "latest")),
        ("interrupt", ("turn", "")),
        ("rollback", ("turn", "")),
        ("reject", ("turn", "")),
        (Debounce("20s", "30s"), ("join", "debounce")),
    ],
)
async def test_each_policy_reaches_the_inbox(
    world: World, policy: Any, kept: tuple[str, str]
) -> None:
    await world.client.submit("web:1", "hello", policy=policy)
    assert await work_of(world, "web:1") == [kept]


async def test_latest_names_what_it_replaced(world: World) -> None:
    """Only what wants to be replaced is."""
    await world.client.submit("web:1", "stays")
    await world.client.submit("web:1", "old", id="old", policy="latest")
    receipt = await world.client.submit("web:1", "new", policy="latest")
    assert receipt.replaced == ("old",)
    assert (await world.client.wait("web:1", "old")).ending == "superseded"
    assert await work_of(world, "web:1") == [("turn", ""), ("turn", "latest")]


async def test_reject_is_busy_and_leaves_nothing(world: World) -> None:
    await world.client.submit("web:1", "first")
    before = await world.stores.dump()
    with pytest.raises(Busy) as busy:
        await world.client.submit("web:1", "second", policy="reject")
    assert (busy.value.scope, busy.value.depth) == ("turn", 1)
    assert await world.stores.dump() == before


async def test_what_is_no_policy_is_refused_before_anything_is_sent(world: World) -> None:
    before = await world.stores.dump()
    with pytest.raises(Invalid, match="policy"):
        await world.client.submit("web:1", "hello", policy="later")  # type: ignore[arg-type]
    assert await world.stores.dump() == before


async def test_without_a_policy_the_agent_decides(world: World) -> None:
    """As its newest worker said; a producer goes by what it has read for ten seconds."""
    await world.stores.worker.tell_policies({"bot": "steer", "other": Debounce("20s", "30s")})
    await world.client.submit("web:1", "hello", agent="bot")
    items = [Submission("web:2", "hello", agent="other"), Submission("web:3", "hello", agent="x")]
    assert [a async for a in world.client.submit_many(items)]
    assert await work_of(world, "web:1") == [("steer", "")]
    assert await work_of(world, "web:2") == [("join", "debounce")]
    assert await work_of(world, "web:3") == [("turn", "")]

    await world.stores.worker.tell_policies({"bot": "join"})
    await world.client.submit("web:1", "again", agent="bot")
    assert await work_of(world, "web:1") == [("steer", ""), ("steer", "")]
    assert world.client._store is not None
    world.client._store._policies._until = 0.0  # as if ten seconds had passed
    await world.client.submit("web:1", "and again", agent="elsewhere")
    assert await work_of(world, "web:1") == [("steer", ""), ("steer", ""), ("join", "join")]


async def test_what_workers_say_of_agents_may_be_damaged(world: World) -> None:
    """A hint, as a newer release may write it, never in the way of a message."""
    for agent, entry in (("bot", "no JSON"), ("b", "[]"), ("c", '{"policy": 1}'), ("d", "{}")):
        await world.stores.executor.command("HSET", world.stores.worker.keys.agents, agent, entry)
    await world.client.submit("web:1", "hello", agent="bot")
    assert await work_of(world, "web:1") == [("turn", "")]


async def test_what_was_known_of_agents_holds_while_their_server_is_away(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a Cluster that is another server than the session's: a message needs only that one."""
    await world.stores.worker.tell_policies({"bot": "steer"})
    await world.client.submit("web:1", "hello", agent="bot")
    store = world.client._store
    assert store is not None
    command = store._fleet.executor.command

    async def away(*args: Any) -> Any:
        if args[1] == store.keys.agents:
            raise StoreUnavailable(reason="away")
        return await command(*args)

    monkeypatch.setattr(store._fleet.executor, "command", away)
    store._policies._until = 0.0  # as if ten seconds had passed
    await world.client.submit("web:1", "again", agent="bot")
    assert await work_of(world, "web:1") == [("steer", ""), ("steer", "")]

    unread = AgentPolicies(store._fleet)
    with pytest.raises(StoreUnavailable):
        await unread.read()

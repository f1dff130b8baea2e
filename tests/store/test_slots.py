"""No script touches a key outside its slot: what it is given lies in one, and it takes no other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from redis.exceptions import ResponseError

from changeover_shared._store.calls import Call
from changeover_shared._store.executor import Executor
from changeover_shared._store.keys import Keys
from changeover_shared._store.scripts import NAMES, script
from changeover_shared._store.slots import slot_of
from changeover_shared._store.state import COLUMNS, Trigger
from tests.support.driving import LATER_MS, Driver
from tests.support.every_request import every_request
from tests.support.fleet import Stores, small_settings, stores_on
from tests.support.state_world import TRIGGERS, VARIANTS, World
from tests.support.targets import MADE_OF, Targets
from tests.support.watching import WatchingExecutor, sha_of, watched


@pytest.mark.parametrize("name", NAMES)
def test_all_keys_of_a_request_lie_in_one_slot(name: str) -> None:
    keys = Keys("co", 64)
    request = every_request(keys, small_settings(), not_after_ms=1, sessions=3)[name]
    named = [request.partition.named("meta"), *request.keys.values()]
    named += [key for one in request.each for key in one.values()]
    assert len({slot_of(key) for key in named}) == 1


@pytest.fixture
async def watching(targets: Targets) -> AsyncIterator[Stores]:
    """The stores on a server, over scripts that check each key."""
    targets[MADE_OF].flush()
    executor = await WatchingExecutor.connect(targets[MADE_OF].url)
    async with stores_on(executor, small_settings()) as found:
        yield found


@pytest.mark.parametrize("trigger", list(Trigger), ids=lambda trigger: trigger.name.lower())
async def test_no_script_touches_a_key_that_it_was_not_given(
    watching: Stores, trigger: Trigger
) -> None:
    """In every cell of the table of statuses and events."""
    for before in COLUMNS:
        for arrange in VARIANTS[before]:
            await watching.empty()
            world = World(Driver(watching))
            await arrange(world)
            await TRIGGERS[trigger](world)
    assert isinstance(watching.executor, WatchingExecutor)
    assert "submit" in watching.executor.ran


@pytest.mark.parametrize("name", NAMES)
async def test_every_script_has_been_watched(watching: Stores, name: str) -> None:
    """Also those that the table has no row for."""
    drive = Driver(watching)
    await drive.run("m1")
    request = every_request(
        drive.fleet.keys, small_settings(), not_after_ms=await drive.now() + LATER_MS
    )[name]
    await drive.bare(request)
    assert isinstance(watching.executor, WatchingExecutor)
    assert name in watching.executor.ran


async def test_a_key_that_was_not_given_is_noticed(watching: Stores) -> None:
    """So that the tests above would fail."""
    drive = Driver(watching)
    await drive.submit("m1")
    ours = script("append")
    text = f"redis.call('GET', KEYS[1] .. ':more')\n{ours.plain}"
    request = every_request(drive.fleet.keys, small_settings(), not_after_ms=1)["append"]
    async with drive.unchanged():
        with pytest.raises(ResponseError, match=r"WATCH GET \{co:"):
            await drive.released(replace(ours, text=text, plain=text), request)


def test_what_is_watched_is_the_script_itself() -> None:
    for name in NAMES:
        assert watched(script(name)).plain.endswith(script(name).plain)


@pytest.mark.parametrize("same_node", [False, True], ids=["of another node", "of this node"])
@pytest.mark.parametrize("flags", ["", "#!lua flags=allow-oom\n"], ids=["plain", "flags"])
async def test_what_a_cluster_refuses_by_itself(
    targets: Targets, same_node: bool, flags: str
) -> None:
    """A key of another node always, one of another slot only to a script with a line of flags:
    so the Cluster alone would not notice every stranger."""
    targets["cluster"].flush()
    executor = await Executor.connect(targets["cluster"].url)
    try:
        mine = "{co:1}:a"
        at = await executor.primary_of(mine)
        names = [f"{{co:{i}}}:a" for i in range(2, 64)]
        places = {name: await executor.primary_of(name) for name in names}
        foreign = next(name for name, place in places.items() if (place == at) == same_node)
        text = f"{flags}redis.call('SET', '{foreign}', 'v') return {{'OK', '0'}}"
        stranger = replace(script("peek"), text=text, sha=sha_of(text))
        call = Call(stranger, mine, lambda _: (1, [mine]))
        if same_node and not flags:
            assert await executor.run(call) == ["OK"]
        else:
            with pytest.raises(ResponseError, match=r"non local key|the same slot"):
                await executor.run(call)
            assert await executor.command("EXISTS", foreign) == 0
    finally:
        await executor.aclose()

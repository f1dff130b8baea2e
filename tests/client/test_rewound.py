"""A server that comes back older than it was: numbers that are used again are never skipped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from changeover import Event, Gap, MessageEvent, SyncClient, TurnCompleted
from tests.client.conftest import World
from tests.support.servers import SERVERS

pytestmark = pytest.mark.timeout(30)

SESSION = "web:1"


async def test_events_that_use_lost_numbers_again_are_told_after_a_gap(world: World) -> None:
    """Hole 30."""
    events, backup = await _seen_and_lost(world)
    await backup.restore()
    await _say(world, "new", 4)
    seen = await _texts_until(events, "new 4")
    assert seen[0] == Gap(seq=3, first=4, last=6, reason="rewound")
    assert seen[1:] == ["new 1", "new 2", "new 3", "new 4"]


async def test_an_idle_follower_is_told_what_was_lost_while_its_number_is_still_ahead(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("changeover._follow.BLOCK_MS", 50)
    events, backup = await _seen_and_lost(world)
    await backup.restore()
    await _say(world, "new", 1)
    assert await _texts_until(events, "new 1") == [
        Gap(seq=3, first=4, last=6, reason="rewound"),
        "new 1",
    ]


async def test_a_rewind_behind_another_one_goes_back_to_the_earlier(world: World) -> None:
    events, backup = await _seen_and_lost(world)
    await backup.restore()
    await _say(world, "new", 3)
    later = await Backup.of(world)
    await later.restore()
    await _say(world, "newest", 1)
    seen = await _texts_until(events, "newest 1")
    assert seen[0] == Gap(seq=3, first=4, last=6, reason="rewound")
    assert seen[1:] == ["new 1", "new 2", "new 3", "newest 1"]


async def test_a_new_history_that_lost_nothing_is_followed_without_a_gap(world: World) -> None:
    events, _ = await _seen_and_lost(world)
    await (await Backup.of(world)).restore()
    await _say(world, "new", 2)
    assert await _texts_until(events, "new 2") == ["new 1", "new 2"]


async def test_a_number_without_a_history_is_one_of_the_current(world: World) -> None:
    _, backup = await _seen_and_lost(world)
    await backup.restore()
    await _say(world, "new", 4)
    fresh = world.client.follow(SESSION, after=5)
    assert await _texts_until(fresh, "new 4") == ["new 3", "new 4"]


async def test_what_was_followed_until_is_looked_up_anew_after_a_rewind(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("changeover._follow.BLOCK_MS", 50)
    await world.client.submit(SESSION, "one", id="m:1")
    backup = await Backup.of(world)
    events = world.client.follow(SESSION, after="start", until="m:1")
    assert isinstance(await anext(events), MessageEvent)
    for number in range(9):
        await world.client.submit(SESSION, f"old {number}", id=f"o:{number}")
    assert await _texts(events, 9) == [f"old {number}" for number in range(9)]
    await backup.restore()
    await world.acting.answer(SESSION, "Hello.")
    seen = [event async for event in events]
    assert seen[0] == Gap(seq=1, first=2, last=10, reason="rewound")
    assert isinstance(seen[-1], TurnCompleted)


async def test_a_view_goes_on_with_the_history_that_there_is(world: World) -> None:
    events, backup = await _seen_and_lost(world)
    view = await world.client.view(SESSION)
    await backup.restore()
    await _say(world, "new", 4)
    async for event in events:
        view = view.apply(event)
        if view.messages[-1].text == "new 4":
            break
    there = (await world.client.view(SESSION)).messages
    assert (view.messages, view.complete) == (there, False)


@pytest.mark.parametrize("world", SERVERS, indirect=True)
async def test_code_without_an_event_loop_is_told_as_well(world: World) -> None:
    await _say(world, "one", 3)
    backup = await Backup.of(world)
    await _say(world, "old", 3)
    with SyncClient(world.url, settings=world.settings) as client:
        events = client.follow(SESSION, after=5)
        assert (await asyncio.to_thread(next, events)).seq == 6
        await backup.restore()
        await _say(world, "new", 4)
        assert await asyncio.to_thread(next, events) == Gap(
            seq=3, first=4, last=6, reason="rewound"
        )
        assert (await asyncio.to_thread(next, events)).seq == 4


class Backup:
    """The partition of the session as a replica had it, to be restored as a failover does."""

    def __init__(self, world: World, dumps: dict[bytes, bytes]) -> None:
        self._world = world
        self._dumps = dumps

    @classmethod
    async def of(cls, world: World) -> Backup:
        """What has reached the replica by now."""
        keys = await world.stores.executor.command("KEYS", cls._pattern(world))
        dumps = await world.stores.executor.commands([("DUMP", key) for key in keys])
        return cls(world, dict(zip(keys, dumps, strict=True)))

    async def restore(self) -> None:
        """The replica becomes the server: later writes never were, and a new epoch begins."""
        executor = self._world.stores.executor
        meta = self._world.stores.producer.keys.of(SESSION).named("meta")
        epoch = int(await executor.command("HGET", meta, "epoch"))
        for key in await executor.command("KEYS", self._pattern(self._world)):
            await executor.command("DEL", key)
        for key, dump in self._dumps.items():
            await executor.command("RESTORE", key, 0, dump)
        await executor.command("HSET", meta, "epoch", epoch + 1)

    @staticmethod
    def _pattern(world: World) -> str:
        return world.stores.producer.keys.of(SESSION).tag + "*"


async def _seen_and_lost(world: World) -> tuple[AsyncIterator[Event], Backup]:
    """A follower that has seen six events, and a replica that has the first three of them."""
    await _say(world, "one", 3)
    backup = await Backup.of(world)
    await _say(world, "old", 3)
    events = world.client.follow(SESSION, after="start")
    assert len(await _texts(events, 6)) == 6
    return events, backup


async def _say(world: World, word: str, count: int) -> None:
    for number in range(1, count + 1):
        await world.client.submit(SESSION, f"{word} {number}", id=f"{word}:{number}")


async def _texts(events: AsyncIterator[Event], count: int) -> list[Event | str]:
    return [_told(await anext(events)) for _ in range(count)]


async def _texts_until(events: AsyncIterator[Event], text: str) -> list[Event | str]:
    seen: list[Event | str] = []
    while not seen or seen[-1] != text:
        seen.append(_told(await anext(events)))
    return seen


def _told(event: Event) -> Event | str:
    return event.text if isinstance(event, MessageEvent) else event

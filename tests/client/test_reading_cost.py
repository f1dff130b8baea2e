"""What reading costs Redis: no command and no entry more than the answer needs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import fakeredis
import pytest

from changeover._wait import wait_for_many
from changeover_shared._store.records import Pulse
from changeover_shared._words import Status
from tests.client.conftest import World
from tests.support.fleet import Stores, fake_executor, small_settings, stores_on

Asked = list[list[tuple[Sequence[Any], Any]]]


@contextmanager
def asking(executor: Any) -> Iterator[Asked]:
    """Every pipeline that the executor is asked for meanwhile: commands with their answers."""
    seen: Asked = []
    single, several = executor.command, executor.commands

    async def command(*args: Any) -> Any:
        answer = await single(*args)
        seen.append([(args, answer)])
        return answer

    async def commands(many: Sequence[Sequence[Any]]) -> list[Any]:
        answers: list[Any] = await several(many)
        seen.append(list(zip(many, answers, strict=True)))
        return answers

    executor.command, executor.commands = command, commands
    try:
        yield seen
    finally:
        del executor.command, executor.commands


@pytest.fixture
async def stores() -> AsyncIterator[Stores]:
    """A fleet of as many partitions as fleets have, on fakeredis."""
    settings = small_settings(partitions=64)
    async with stores_on(fake_executor(fakeredis.FakeServer()), settings) as found:
        yield found


async def _list(stores: Stores, created: dict[str, int]) -> None:
    """Put sessions into the catalogue, as `submit` does."""
    keys = stores.producer.keys
    await stores.executor.commands(
        [("ZADD", keys.of(name).named("sessions"), at, name) for name, at in created.items()]
    )


async def _pages(stores: Stores, limit: int) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    while page := await stores.producer.catalogue(before=found[-1] if found else None, limit=limit):
        found += page
    return found


async def test_a_page_of_sessions_reads_little_more_than_it_shows(stores: Stores) -> None:
    created = {f"web:{number}": 1_000 + number for number in range(3_000)}
    await _list(stores, created)
    with asking(stores.executor) as asked:
        page = await stores.producer.catalogue(before=None, limit=100)
    assert [name for _, name in page] == [f"web:{number}" for number in range(2_999, 2_899, -1)]
    assert sum(len(answer) // 2 for sent in asked for _, answer in sent) < 6 * 100


@pytest.mark.parametrize("limit", [1, 7, 100])
async def test_pages_hold_each_session_once_wherever_it_lies(stores: Stores, limit: int) -> None:
    keys = stores.producer.keys
    crowded = [name for name in (f"a:{n}" for n in range(9_000)) if keys.of(name).partition == 3]
    created = {name: 5_000 + number // 40 for number, name in enumerate(crowded[:90])}
    created |= {f"web:{number}": 1_000 + number % 9 * 1_000 for number in range(60)}
    await _list(stores, created)
    expected = sorted(((at, name) for name, at in created.items()), reverse=True)
    assert await _pages(stores, limit) == expected


async def test_a_pulse_is_one_command_and_says_where_the_journal_stands(world: World) -> None:
    store = world.stores.producer
    assert await store.pulse("web:1") is None
    await world.client.submit("web:1", "hello", id="m:1")
    with asking(world.stores.executor) as asked:
        found = await store.pulse("web:1")
    assert [args[0] for sent in asked for args, _ in sent] == ["HMGET"]
    assert found == Pulse(status=Status.READY, seq=1, first_seq=1, epoch=1, epoch_seq=1)


async def test_many_outcomes_are_two_pipelines_receipts_and_turns(world: World) -> None:
    receipts = []
    for number in range(20):
        session = f"web:{number}"
        receipts.append(await world.client.submit(session, "hello", id="m:1"))
        if number:
            await world.acting.answer(session, f"Hello from {session}.")
    await world.client.cancel("web:0", "m:1")
    with asking(world.stores.executor) as asked:
        store = world.stores.producer
        outcomes = [outcome async for outcome in wait_for_many(store, receipts, None)]
    assert [outcome.text for outcome in outcomes] == [
        "", *(f"Hello from web:{number}." for number in range(1, 20))
    ]  # fmt: skip
    assert [[args[0] for args, _ in sent] for sent in asked] == [["HGET"] * 20, ["XRANGE"] * 19]


async def test_turns_of_several_sessions_are_read_with_one_answer_each(world: World) -> None:
    for session in ("web:1", "web:2"):
        await world.client.submit(session, "hello", id="m:1")
        await world.acting.answer(session, f"Hello from {session}.")
    pairs = [("web:1", "t_1"), ("web:2", "t_1"), ("web:2", "t_7")]
    first, second, none = await world.stores.producer.turns_of(pairs)
    assert first is not None
    assert second is not None
    assert (first.text, second.text, none) == ("Hello from web:1.", "Hello from web:2.", None)
    assert await world.stores.producer.turns_of([]) == []

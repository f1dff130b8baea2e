"""A turn is run once: whoever asks again, after whatever end, is answered from the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from changeover import Client
from changeover_shared._errors import StoreUnavailable
from changeover_shared._store.calls import Call
from changeover_shared._store.executor import Executor
from changeover_shared._words import Ending, Status
from changeover_worker._agent import Agent
from changeover_worker._app import App
from changeover_worker.testing import ScriptedModel, say
from tests.support.exiting_worker import INCARNATION, exits
from tests.support.fleet import small_settings, stores_on
from tests.support.holding import Bench, bench
from tests.support.servers import (
    RunningServer,
    flush,
    killed_and_started_again,
    running_server,
    server_process,
)

SETTINGS = small_settings()
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")


def app_of(model: ScriptedModel) -> App:
    return App(agents=[Agent("bot", model="m")], models={"m": model})


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Bench]:
    """The session over connections of its own."""
    async with stores_on(await Executor.connect(url), SETTINGS) as stores:
        yield Bench(stores, SETTINGS)


async def assert_done_once(on: Bench, texts: Sequence[str]) -> None:
    """One turn, its two items, and an id that answers with its end and starts nothing."""
    items = [entry.item for entry in await on.transcript()]
    assert [item.type for item in items] == ["user", "assistant"]
    assert [getattr(item, "text", "") for item in items] == list(texts)
    (record,) = await on.turns()
    assert (record.ending, record.text) == (Ending.COMPLETED, texts[1])
    again = await on.submit(texts[0])
    assert (again.word, again.ending) == ("DUPLICATE", Ending.COMPLETED)
    (state,) = await on.stores.producer.submissions([(on.session, "m1")])
    assert state is not None and (state.ending, state.turn) == (Ending.COMPLETED, "t_1")
    head = await on.stores.worker.read_head(on.session)
    assert head is not None and (head.turns, head.status) == (1, Status.IDLE)
    assert len(await on.transcript()) == 2
    assert (await on.types()).count("turn_completed") == 1


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with running_server() as url:
        yield url


async def test_a_finished_turn_is_there_for_new_connections_and_is_not_run_again(
    server: str,
) -> None:
    """Case R1: asking again with its id, over another connection, answers the stored outcome."""
    flush(server)
    model = ScriptedModel(say("persisted"))
    async with connected(server) as on:
        await on.submit("remember this")
        await on.run(app_of(model))
        assert len(model.requests) == 1
    async with connected(server) as on:
        await assert_done_once(on, ["remember this", "persisted"])
        async with Client(server, settings=SETTINGS) as client:
            outcome = await client.run("s", "remember this", id="m1")
        assert (outcome.text, outcome.turn_id) == ("persisted", "t_1")
        assert len(model.requests) == 1


@pytest.mark.parametrize("kind", ["valkey", "redis"])
async def test_a_finished_turn_survives_a_server_that_is_killed(kind: str) -> None:
    """Case R1: the server's own log of commands brings the session back whole."""
    again: RunningServer | None = None
    with server_process(kind, DURABLE) as first:
        async with connected(first.url) as on:
            await on.submit("remember this")
            await on.run(app_of(ScriptedModel(say("persisted"))))
            before = await own(on)
        try:
            again = await asyncio.to_thread(killed_and_started_again, first, DURABLE)
            async with connected(again.url) as on:
                assert await own(on) == before
                await assert_done_once(on, ["remember this", "persisted"])
        finally:
            if again is not None:
                again.process.kill()
                again.process.wait()


async def own(on: Bench) -> dict[str, Any]:
    """The session's keys."""
    prefix = on.stores.worker.keys.of(on.session).session(on.session, "")
    return {key: value for key, value in (await on.stores.dump()).items() if key.startswith(prefix)}


async def test_a_turn_whose_process_ended_right_after_its_commit_is_found_completed(
    server: str,
) -> None:
    """Case R3: the commit was durable and nobody had heard of it; the next worker runs nothing."""
    flush(server)
    async with connected(server) as on:
        await on.submit("persist before acknowledgement")
        await exits(server, "after_commit", "end", "committed before exit")
        await on.stores.worker.bury(INCARNATION)
        await assert_done_once(on, ["persist before acknowledgement", "committed before exit"])


async def test_what_waited_behind_such_a_turn_is_all_that_its_successor_runs(server: str) -> None:
    """Case R3: also when the commit that ended the turn kept the lease for the next one."""
    flush(server)
    async with connected(server) as on:
        await on.submit("persist before acknowledgement")
        await on.submit("and then", "m2")
        await exits(server, "after_commit", "end", "committed before exit")
        await on.stores.worker.bury(INCARNATION)
        model = ScriptedModel(say("the second"))
        await on.run(app_of(model))
        assert [record.text for record in await on.turns()] == [
            "committed before exit", "the second",
        ]  # fmt: skip
        (request,) = model.requests
        assert len(request.items) == 3
        assert len(await on.transcript()) == 4


async def test_a_turn_whose_process_ended_right_before_its_commit_is_run_by_another(
    server: str,
) -> None:
    """Case R3: what was not committed did not happen, and the message is answered all the same."""
    flush(server)
    async with connected(server) as on:
        await on.submit("persist before acknowledgement")
        await exits(server, "before_commit", "end", "never heard")
        await on.stores.worker.bury(INCARNATION)
        await on.run(app_of(ScriptedModel(say("answered by another"))))
        await assert_done_once(on, ["persist before acknowledgement", "answered by another"])


@pytest.mark.parametrize("lost", ["request", "reply"])
@pytest.mark.parametrize("at", [1, 2])
async def test_a_commit_whose_answer_is_lost_is_asked_again_and_is_there_once(
    at: int, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case R3: the repeat of a commit is answered as the first one was, not with a conflict."""
    async with bench() as on:
        model = ScriptedModel(say("committed before exit"))
        executor = on.stores.executor
        run, commits = executor.run, 0

        async def losing(call: Call) -> Any:
            nonlocal commits
            commits += call.script.name == "commit"
            if call.script.name != "commit" or commits != at:
                return await run(call)
            if lost == "reply":
                await run(call)
            raise StoreUnavailable(reason="lost on the way")

        monkeypatch.setattr(executor, "run", losing)
        await on.submit("persist before acknowledgement")
        end = await on.run(app_of(model))
        assert (end.how, end.turns, len(model.requests), commits) == ("released", 1, 1, 3)
        await assert_done_once(on, ["persist before acknowledgement", "committed before exit"])


async def test_a_message_that_is_sent_again_while_its_turn_runs_is_the_same_turn() -> None:
    """Case R1: its id is what it is known by, from its acceptance to the end of the window."""
    async with bench() as on:
        model = ScriptedModel(say("persisted"))
        await on.submit("remember this")
        first = await on.submit("remember this")
        assert (first.word, first.ending) == ("DUPLICATE", None)
        await on.run(app_of(model))
        assert len(model.requests) == 1
        await assert_done_once(on, ["remember this", "persisted"])

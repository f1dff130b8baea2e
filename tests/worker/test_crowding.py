"""Bounds on what waits in all sessions of a tenant and of the fleet, with workers that count it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from changeover import Busy, Ending, Operator
from changeover_shared._items import UserMessage
from changeover_shared._settings import Settings
from changeover_shared._store.executor import Executor
from changeover_shared._store.keys import Keys
from changeover_worker import Agent, App, tool
from changeover_worker._models.model import ModelRequest
from changeover_worker._models.scripted import Entry
from changeover_worker.testing import ScriptedModel, call, say
from tests.support.servers import SERVERS, running_server
from tests.support.working import eventually_found, own_fleet, working


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_server(SERVERS[-1]) as server:
        yield server


def app() -> App:
    model = ScriptedModel.always(say("done"))
    return App(agents=[Agent("assistant", model="m")], models={"m": model})


def of_tenant(settings: Settings, tenant: str) -> Settings:
    return settings.model_copy(update={"tenant": tenant})


async def _refusal(client: Operator, session: str) -> Busy | None:
    """The refusal of a message; None when it was taken. Each has an id of its own."""
    try:
        await client.submit(session, "one more")
    except Busy as error:
        return error
    return None


async def test_a_tenant_with_as_many_waiting_as_may_is_busy_until_some_have_run(url: str) -> None:
    """G9: over all partitions, and nobody else is refused."""
    settings = own_fleet(tenant_inbox=10)
    async with (
        working(app(), settings, url) as at,
        Operator(url, settings=of_tenant(settings, "acme")) as acme,
        Operator(url, settings=of_tenant(settings, "other")) as other,
    ):
        await acme.pause("assistant")
        for i in range(10):
            await acme.submit(f"acme:{i}", "hello")
        (full,) = await at.has_logged("inbox_full")
        assert (full["whose"], full["depth"], full["limit"]) == ("tenant acme", 10, 10)
        refusals = []

        async def refused() -> bool:
            if found := await _refusal(acme, "acme:new"):
                refusals.append(found)
            return bool(refusals)

        await eventually_found(refused, "the partition of a new session has been told")
        assert (refusals[0].scope, refusals[0].limit) == ("tenant", 10)
        assert refusals[0].depth >= 10
        assert await _refusal(other, "other:1") is None
        await acme.resume("assistant")

        async def taken() -> bool:
            return await _refusal(acme, "acme:0") is None

        await eventually_found(taken, "some have run, and messages are taken again")
        await at.has_logged("inbox_back")


async def test_a_full_fleet_is_busy_for_everybody(url: str) -> None:
    settings = own_fleet(fleet_inbox=4)
    async with working(app(), settings, url), Operator(url, settings=settings) as client:
        await client.pause("assistant")
        for i in range(4):
            await client.submit(f"s:{i}", "hello")
        scopes: list[str] = []

        async def refused() -> bool:
            found = await _refusal(client, "s:0")
            scopes.extend([found.scope] if found else [])
            return bool(scopes)

        await eventually_found(refused, "a bound of the fleet holds for those without a tenant")
        assert scopes == ["fleet"]


async def test_what_a_leader_with_a_bound_has_said_is_taken_back_by_one_without(url: str) -> None:
    settings = own_fleet()
    async with Operator(url, settings=settings) as client:
        await client.submit("s:1", "hello")
        meta = Keys(settings.prefix, settings.partitions).of("s:1").named("meta")
        redis = await Executor.connect(url)
        await redis.command("HSET", meta, "full", "99999999999999|*=9/9|")
        with pytest.raises(Busy, match="9 submissions wait in the fleet"):
            await client.submit("s:1", "hello")
        async with working(app(), settings, url):

            async def taken() -> bool:
                return await _refusal(client, "s:1") is None

            await eventually_found(taken, "the partition is open again")
        await redis.aclose()


async def test_a_producer_that_sends_after_every_step_starves_no_other_session(url: str) -> None:
    """With one slot for both: its turns end, and then somebody else has his."""
    settings = own_fleet(concurrency=1, max_inbox=4, lease="3s", renew="500ms", margin="500ms")
    turns_of_others = 0

    async with Operator(url, settings=settings) as client:

        @tool(effect="pure")
        async def look() -> str:
            """Look, while somebody writes on."""
            if not turns_of_others:
                with suppress(Busy):
                    while True:
                        await client.submit("chatty", "more", policy="steer")
            return "seen"

        def answer(request: ModelRequest) -> Entry:
            asked_anew = isinstance(request.items[-1], UserMessage)
            return call("look") if request.session_id == "chatty" and asked_anew else say("ok")

        model = ScriptedModel.by(answer)
        agents = [Agent("assistant", model="m", tools=[look])]
        async with working(App(agents=agents, models={"m": model}), settings, url):
            first = await client.submit("chatty", "go")
            outcome = await client.wait("chatty", first.submission_id, timeout="60s")
            assert outcome.ending is Ending.COMPLETED
            other = await client.run("other", "hello", timeout="60s")
            assert other.ending is Ending.COMPLETED
            turns_of_others += 1

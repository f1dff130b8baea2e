"""Two releases serve one fleet: who may claim what, and what waits says so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from changeover import Operator
from changeover_shared._store.keys import Keys
from changeover_shared._store.lease_store import LeaseStore
from changeover_shared._words import FORMAT
from changeover_worker import Agent, App
from changeover_worker.testing import ScriptedModel, say
from tests.support.servers import running_server
from tests.support.working import eventually_found, own_fleet, working

NEWER = f"assistant@{FORMAT + 1}"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_server() as url:
        yield url


def app_of(*agents: str) -> App:
    """A release of an app."""
    model = ScriptedModel.always(say("yes"))
    return App(agents=[Agent(name, model="m") for name in agents], models={"m": model})


async def test_an_older_worker_never_claims_what_a_newer_release_wrote(url: str) -> None:
    """Hole 39: what a session was written as is part of where it waits, so nobody looks there who
    could not read it, and it stands in nobody's way."""
    settings = own_fleet(partitions=1)
    store = await LeaseStore.open(url, settings)
    async with Operator(url, settings=settings) as operator:
        await operator.submit("s:new", "hello")
        # As a newer release leaves it: its head, its place and its index say so.
        at = Keys(settings.prefix, 1).of("s:new")
        await store.executor.command("HSET", at.session("s:new", "head"), "route", NEWER)
        (score,) = await store.executor.commands([("ZSCORE", at.ready("assistant@1"), "s:new")])
        await store.executor.command("ZREM", at.ready("assistant@1"), "s:new")
        await store.executor.command("ZADD", at.ready(NEWER), score, "s:new")
        before = await store.executor.command("HGETALL", at.session("s:new", "head"))
        async with working(app_of("assistant"), settings, url) as old:
            receipt = await operator.submit("s:old", "hello")
            assert (await operator.wait("s:old", receipt.submission_id)).text == "yes"
            # Also when it is told of it by a bell that is its own.
            await store.ring("assistant@1", [0])
            receipt = await operator.submit("s:old", "again")
            assert (await operator.wait("s:old", receipt.submission_id)).text == "yes"
            told = await operator.explain("s:new")
            assert told.code == "format_too_new"
            assert told.remedy == "start workers of the newer release"
            assert {one["session"] for one in old.logged("session_claimed")} == {"s:old"}
        assert await store.executor.command("HGETALL", at.session("s:new", "head")) == before
    await store.aclose()


async def test_a_session_whose_agent_only_the_new_release_has_waits_for_it_and_says_so(
    url: str,
) -> None:
    settings = own_fleet(queues=("shared",))
    async with Operator(url, settings=settings) as operator:
        async with working(app_of("first"), settings, url, name="old") as old:
            receipt = await operator.submit("s:1", "hello", agent="second", queue="shared")

            async def says_so() -> bool:
                return (await operator.explain("s:1")).code == "no_worker_for_agent"

            await eventually_found(says_so, "what it waits for is told")
            await old.has_logged("warning")
            async with working(app_of("first", "second"), settings, url, name="new"):
                assert (await operator.wait("s:1", receipt.submission_id)).text == "yes"
        turn = (await operator.turns("s:1")).items[0]
        assert (turn.ending, turn.takeovers) == ("completed", 0)

"""A whole worker against a provider over HTTP that answers 429 for a while."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from changeover import Client, Outcome
from changeover._operator import Operator
from changeover_shared._items import AssistantMessage
from changeover_shared._words import Ending
from changeover_worker._agent import Agent
from changeover_worker._app import App
from changeover_worker._models.model import Emit, ModelRequest, ModelResponse
from changeover_worker._models.openai import OpenAIModel
from changeover_worker._session import commits
from changeover_worker.testing import ScriptedModel, say
from tests.support.model_server import ModelServer, Reply, chunk, error, sse
from tests.support.servers import running_server
from tests.support.working import Working, own_fleet, working

HELLO = Reply(sse(chunk("Hello."), chunk(finish="stop"), "[DONE]"))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_server() as url:
        yield url


@asynccontextmanager
async def served(
    url: str, *replies: Reply, **given: object
) -> AsyncIterator[tuple[Operator, ModelServer, Working]]:
    """A worker whose agent `far` asks a provider that sends `replies`, and `near` a script."""
    settings = own_fleet(**given)
    async with ModelServer(*replies) as server:
        far = OpenAIModel("test", base_url=server.url, api="chat", api_key="none")
        app = App(
            agents=[Agent("far", model="far"), Agent("near", model="near")],
            models={"far": far, "near": ScriptedModel.always(say("at once"))},
        )
        async with (
            Operator(url, settings=settings) as client,
            working(app, settings, url) as at,
        ):
            yield client, server, at
        await far.aclose()


async def answer_of(client: Client, session: str, agent: str) -> Outcome:
    receipt = await client.submit(session, "hello", agent=agent)
    return await client.wait(session, receipt.submission_id, timeout="20s")


async def test_a_provider_that_is_busy_for_a_moment_costs_a_moment(url: str) -> None:
    busy = error(429, "Slow down.", headers={"Retry-After": "0"})
    async with served(url, busy, HELLO) as (client, server, at):
        outcome = await answer_of(client, "s", "far")
        assert (outcome.ending, outcome.text) == (Ending.COMPLETED, "Hello.")
        assert len(server.requests) == 2
        assert at.logged("session_parked") == []


async def test_a_provider_that_wants_to_be_left_alone_keeps_no_slot(url: str) -> None:
    """The only slot serves another session meanwhile."""
    busy = error(429, "Slow down.", headers={"retry-after-ms": "5001"})
    async with served(url, busy, HELLO, concurrency=1) as (client, server, at):
        receipt = await client.submit("s", "hello", agent="far")
        (parked,) = await at.has_logged("session_parked")
        info = await client.session("s")
        assert (parked["session"], info.status, info.worker) == ("s", "parked", None)
        assert info.waiting is not None and info.waiting.startswith("timer retry until ")
        assert (await client.view("s")).status == "parked"
        explained = await client.explain("s")
        assert explained.code == "rate_limited"
        assert explained.facts["model"] == "far"
        assert "the model failed (" in explained.text
        assert "Slow down." in explained.text
        (failed,) = at.logged("model_failed")
        assert (failed["session"], failed["turn"], failed["kind"]) == (
            "s", "t_1", "provider_rate_limit",
        )  # fmt: skip
        assert (await answer_of(client, "other", "near")).text == "at once"
        assert len(server.requests) == 1
        outcome = await client.wait("s", receipt.submission_id, timeout="20s")
        assert (outcome.ending, outcome.text, outcome.takeovers) == (Ending.COMPLETED, "Hello.", 0)
        assert len(server.requests) == 2


class Silent:
    """A model that says nothing at all, three times."""

    name = "silent"
    asked = 0

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        self.asked += 1
        if self.asked <= 3:
            await asyncio.Event().wait()
        return ModelResponse(AssistantMessage(text="at last"))


async def test_a_provider_that_is_silent_for_longer_than_a_session_may_stand_still_is_no_poison(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt has its own time under a grant of its own; none of them is lost."""
    monkeypatch.setattr(commits, "SLACK_MS", 500)
    quick = {"lease": "1s", "renew": "0.3s", "margin": "0.1s"}
    settings = own_fleet(step_timeout="1s", no_progress_timeout="2.4s", **quick)
    app = App(agents=[Agent("far", model="far")], models={"far": Silent()})
    async with Operator(url, settings=settings) as client, working(app, settings, url) as at:
        outcome = await answer_of(client, "s", "far")
        assert (outcome.ending, outcome.text, outcome.takeovers) == (
            Ending.COMPLETED, "at last", 0,
        )  # fmt: skip
        assert len(at.logged("model_failed")) == 3
        assert (at.logged("lease_lost"), at.logged("session_quarantined")) == ([], [])


async def test_an_interrupt_ends_a_parked_turn_without_another_request(url: str) -> None:
    busy = error(429, "Slow down.", headers={"Retry-After": "30"})
    async with served(url, busy) as (client, server, at):
        receipt = await client.submit("s", "hello", agent="far")
        await at.has_logged("session_parked")
        await client.interrupt("s", reason="enough")
        outcome = await client.wait("s", receipt.submission_id, timeout="20s")
        assert (outcome.ending, len(server.requests)) == (Ending.ABORTED, 1)

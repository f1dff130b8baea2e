"""Asking to go on with another session: in order, safe to repeat, and nothing of it is opened."""

from __future__ import annotations

import pytest

from changeover import Client, Ending, IdReused, Invalid, UnknownSession
from changeover_shared._events import SessionResumeRequested
from changeover_shared._ops import ResumeSessionOp, decode_op
from changeover_shared._store.executor import Executor
from changeover_worker.testing import ScriptedModel, say
from tests.client.conftest import World
from tests.support.fleet import stores_on
from tests.support.holding import Bench
from tests.support.recovering import app_of
from tests.support.servers import SERVERS


async def test_the_request_waits_in_order_and_may_be_repeated(world: World) -> None:
    await world.client.submit("web:1", "one", id="m:1")
    receipt = await world.client.resume_session("web:1", "web:2", id="r:1")
    assert (receipt.answer, receipt.position) == ("accepted", 1)
    entry = (await world.stores.producer.inbox("web:1"))[1]
    assert decode_op(entry.body) == ResumeSessionOp(target="web:2")
    before = await world.stores.dump()
    assert (await world.client.resume_session("web:1", "web:2", id="r:1")).answer == "duplicate"
    with pytest.raises(IdReused):
        await world.client.resume_session("web:1", "web:3", id="r:1")
    with pytest.raises(UnknownSession):
        await world.client.resume_session("web:9", "web:1")
    changed = {k for k, v in (await world.stores.dump()).items() if before.get(k) != v}
    assert all(key.endswith(":meta") for key in changed)


async def test_a_target_that_is_no_id_is_refused_before_anything_is_sent() -> None:
    client = Client("redis://127.0.0.1:1/0")
    for target in ("", "a b", None):
        with pytest.raises(Invalid, match="target"):
            await client.resume_session("web:1", target)  # type: ignore[arg-type]


@pytest.mark.parametrize("world", SERVERS, indirect=True)
async def test_a_follower_is_told_the_other_sessions_context_or_why_not(world: World) -> None:
    """Case 000-8: from the request to the follower, with the request's id on the event."""
    assert world.url is not None
    client = world.client
    await client.submit("target", "x", agent="bot", context={"origin_label": "cron"})
    async with stores_on(await Executor.connect(world.url), world.settings) as stores:
        on = Bench(stores, world.settings, session="current")
        await client.submit("current", "hello", agent="bot")
        await client.resume_session("current", "target", id="r:1")
        await client.resume_session("current", "nowhere", id="r:2")
        await on.run(app_of(ScriptedModel(say("hi"))))
    assert (await client.wait("current", "r:1")).ending is Ending.COMPLETED
    events = [e async for e in client.follow("current", after="start", until="r:1")]
    assert isinstance(events[-1], SessionResumeRequested)
    assert (events[-1].target, events[-1].context) == ("target", {"origin_label": "cron"})
    outcome = await client.wait("current", "r:2")
    assert outcome.ending is Ending.FAILED and outcome.error is not None
    assert "there is no session 'nowhere'" in outcome.error.message
    assert (await client.session("target")).status == "ready"
    assert (await client.view("current")).status == "idle"

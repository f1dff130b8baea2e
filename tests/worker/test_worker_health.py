"""What a worker answers to probes and scrapes, over real HTTP, and what it counts."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from changeover import Client, Outcome
from changeover_shared._settings import Settings
from changeover_shared._store.lease_store import LeaseStore
from changeover_shared._words import Ending
from changeover_worker import Agent, App, tool
from changeover_worker.testing import ScriptedModel, call, fail, say
from tests.support.nodes import Node, running_node
from tests.support.probing import Reply, ask, samples
from tests.support.processes import processes
from tests.support.working import Working, eventually, own_fleet, working

ANYWHERE = "127.0.0.1:0"


@pytest.fixture(scope="module")
def server() -> Iterator[Node]:
    with running_node(args=["--appendonly", "yes", "--appendfsync", "always"]) as server:
        yield server


@tool
async def blocks() -> str:
    """Keeps the loop from running."""
    time.sleep(2)  # noqa: ASYNC251 - that is what is found out
    return "done"


def app(pause_s: float = 0.0) -> App:
    """One agent that answers in six pieces, one that asks for the tool above."""
    slow = ScriptedModel.always(say("......"), chunk=1, pause=pause_s)
    return App(
        agents=[Agent("assistant", model="slow"), Agent("blocking", model="calls", tools=[blocks])],
        models={"slow": slow, "calls": ScriptedModel(call("blocks"), say("done"))},
    )


def probed(**given: object) -> Settings:
    return own_fleet(health_bind=ANYWHERE, **given)


async def address(at: Working) -> str:
    (listening,) = await at.has_logged("health_listening")
    return str(listening["bind"])


async def get(at: str, path: str) -> Reply:
    return await asyncio.to_thread(ask, at, path)


async def counted(at: str) -> dict[str, float]:
    reply = await get(at, "/metrics")
    assert reply.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    return samples(reply.text)


async def until(at: str, path: str, status: int) -> Reply:
    """Ask until the answer has a status."""
    deadline = time.monotonic() + 20
    while (reply := await get(at, path)).status != status:
        assert time.monotonic() < deadline, f"{path} still answers {reply}"
        await asyncio.sleep(0.02)
    return reply


async def ask_agent(server: Node, settings: Settings, agent: str = "assistant") -> Outcome:
    async with Client(server.url, settings=settings) as client:
        receipt = await client.submit(f"{agent}:1", "hello", agent=agent)
        return await client.wait(f"{agent}:1", receipt.submission_id, timeout="60s")


async def until_counted(at: str, name: str, value: float) -> None:
    """Scrape until a sample has a value."""
    deadline = time.monotonic() + 20
    while (found := await counted(at)).get(name) != value:
        assert time.monotonic() < deadline, f"{name} is {found.get(name)}"
        await asyncio.sleep(0.02)


@asynccontextmanager
async def lease_store(server: Node, settings: Settings) -> AsyncIterator[LeaseStore]:
    store = await LeaseStore.open(server.url, settings)
    try:
        yield store
    finally:
        await store.aclose()


class Prober:
    """Asks one path again and again from a thread, as a kubelet does, and keeps the answers."""

    def __init__(self, at: str, path: str) -> None:
        self.replies: list[Reply] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask, args=(at, path), daemon=True)
        self._thread.start()

    def _ask(self, at: str, path: str) -> None:
        while not self._over.wait(0.05):
            self.replies.append(ask(at, path))

    def stop(self) -> None:
        self._over.set()
        self._thread.join(10)


async def test_nothing_listens_unless_it_was_asked_for(server: Node) -> None:
    async with working(app(), own_fleet(), server.url) as at:
        assert at.logged("health_listening") == []
        assert not any(thread.name == "probes" for thread in threading.enumerate())


async def test_a_worker_at_work_is_live_and_ready_and_says_what_it_is(server: Node) -> None:
    settings = probed(concurrency=7, build="1.5.0")
    async with working(app(), settings, server.url, name="a") as at:
        where = await address(at)
        assert (await get(where, "/livez")).text == "live\n"
        assert (await until(where, "/readyz", 200)).text == "ready\n"
        status = (await get(where, "/status")).json
        assert status["incarnation"] == at.worker.incarnation
        assert (status["worker"], status["build"], status["slots"]) == ("a", "1.5.0", 7)
        assert (status["state"], status["sessions"]) == ("running", 0)
        assert status["oldest_session_s"] is None
        assert (status["live"], status["ready"], status["reasons"]) == (True, True, [])


async def test_a_blocked_loop_is_told_to_probes_and_scrapes_while_it_is_blocked(
    server: Node,
) -> None:
    settings = probed(loop_lag_limit="500ms")
    async with working(app(), settings, server.url) as at:
        where = await address(at)
        await until(where, "/readyz", 200)
        live, ready, scraped = (Prober(where, f"/{one}") for one in ("livez", "readyz", "metrics"))
        try:
            outcome = await ask_agent(server, settings, agent="blocking")
        finally:
            for prober in (live, ready, scraped):
                prober.stop()
        assert outcome.ending is Ending.COMPLETED
        for prober in (live, ready):
            refused = [one.text for one in prober.replies if one.status == 503]
            assert refused and all("the event loop has been blocked" in text for text in refused)
        # Scraped meanwhile, not only before and after: the lag grows from answer to answer.
        assert {one.status for one in scraped.replies} == {200}
        lags = {samples(one.text)["event_loop_lag_seconds"] for one in scraped.replies}
        assert len([lag for lag in lags if 0.5 < lag < 2.5]) > 3
        assert (await until(where, "/livez", 200)).text == "live\n"


async def test_a_worker_that_drains_is_live_and_not_ready(server: Node) -> None:
    settings = probed()
    async with working(app(pause_s=0.2), settings, server.url) as at:
        where = await address(at)
        await until(where, "/readyz", 200)
        asked = asyncio.create_task(ask_agent(server, settings))
        await at.has_logged("session_claimed")
        at.worker.drain("the deploy")
        reply = await get(where, "/readyz")
        assert (reply.status, reply.text) == (503, "draining: the deploy\n")
        assert (await get(where, "/livez")).status == 200
        status = (await get(where, "/status")).json
        assert (status["state"], status["sessions"]) == ("draining", 1)
        assert status["reasons"] == ["draining: the deploy"]
        await asyncio.wait({at.task})
        async with working(app(), settings, server.url):
            assert (await asked).ending is Ending.COMPLETED


async def test_a_worker_whose_redis_is_away_is_live_and_not_ready(server: Node) -> None:
    settings = probed(lease="3s", renew="300ms", margin="300ms")
    async with working(app(), settings, server.url) as at:
        where = await address(at)
        await until(where, "/readyz", 200)
        server.kill()
        try:
            assert "Redis has not answered for" in (await until(where, "/readyz", 503)).text
            assert (await get(where, "/livez")).text == "live\n"
        finally:
            server.start_again()
        await until(where, "/readyz", 200)


async def test_turns_and_slots_are_counted(server: Node) -> None:
    settings = probed(concurrency=3)
    async with working(app(pause_s=0.1), settings, server.url) as at:
        where = await address(at)
        before = await counted(where)
        assert before['worker_slots{state="free"}'] == 3
        assert before["lease_renew_slack_seconds"] == pytest.approx(27, abs=0.5)
        asked = asyncio.create_task(ask_agent(server, settings))
        await at.has_logged("session_claimed")
        during = await counted(where)
        assert (during['worker_slots{state="used"}'], during['worker_slots{state="free"}']) == (
            1,
            2,
        )
        assert 15 < during["lease_renew_slack_seconds"] <= 27
        await asked
        await eventually(lambda: at.logged("turn_ended") != [], "the turn ended")
        after = await counted(where)
        assert after['turns_total{agent="assistant",ending="completed"}'] == 1
        assert after['turn_seconds_count{agent="assistant",ending="completed"}'] == 1
        assert 0.5 < after['turn_seconds_sum{agent="assistant",ending="completed"}'] < 30
        assert after['claim_wait_seconds_count{queue="assistant"}'] == 1


async def test_models_tools_tokens_and_commits_are_counted(server: Node) -> None:
    @tool
    async def weather(city: str) -> str:
        """Say what the weather is like."""
        return "sunny"

    calls = ScriptedModel(call("weather", city="Oslo"), call("nonsense:1"), say("It is sunny."))
    asks = Agent("assistant", model="main", tools=[weather])
    settings = probed()
    async with working(App(agents=[asks], models={"main": calls}), settings, server.url) as at:
        where = await address(at)
        assert (await ask_agent(server, settings)).ending is Ending.COMPLETED
        await at.has_logged("turn_ended")
        found = await counted(where)
        assert found['steps_total{ending="completed",model="main"}'] == 3
        assert found['model_seconds_count{model="main"}'] == 3
        assert found['tool_calls_total{ending="ok",tool="weather"}'] == 1
        assert found['first_text_seconds_count{agent="assistant"}'] == 1
        assert found["commit_seconds_count"] >= 5
        assert found["commit_bytes_sum"] > 1000
        # What only the model has named is no label.
        assert found['tool_calls_total{ending="error",tool="unknown_tool"}'] == 1
        assert not any("nonsense" in name for name in found)


async def test_a_model_that_fails_is_counted_as_such(server: Node) -> None:
    fails = ScriptedModel.always(fail("provider_auth"))
    agent = Agent("assistant", model="main")
    settings = probed()
    async with working(App(agents=[agent], models={"main": fails}), settings, server.url) as at:
        assert (await ask_agent(server, settings)).ending is Ending.FAILED
        await at.has_logged("turn_ended")
        found = await counted(await address(at))
        assert found['steps_total{ending="failed",model="main"}'] == 1
        assert found['turns_total{agent="assistant",ending="failed"}'] == 1
        assert 'first_text_seconds_count{agent="assistant"}' not in found


async def test_a_takeover_an_unknown_tool_and_a_late_write_are_counted_where_they_are_seen(
    server: Node,
) -> None:
    may_end = asyncio.Event()

    @tool(effect="once")
    async def charge() -> str:
        """Charge the card."""
        await may_end.wait()
        return "charged"

    agent = Agent("assistant", model="main", tools=[charge])
    paid = App(agents=[agent], models={"main": ScriptedModel(call("charge"), say("done"))})

    settings = probed()
    async with (
        lease_store(server, settings) as store,
        working(paid, settings, server.url, name="a") as a,
    ):
        asked = asyncio.create_task(ask_agent(server, settings))
        await a.has_logged("session_claimed")
        await until_counted(await address(a), 'steps_total{ending="completed",model="main"}', 1)
        a.worker.pause()
        await store.bury(a.worker.incarnation)
        async with working(paid, settings, server.url, name="b") as b:
            assert (await asked).ending is Ending.COMPLETED
            await b.has_logged("turn_ended")
            found = await counted(await address(b))
            assert found['takeovers_total{reason="evicted"}'] == 1
            assert found["tools_unknown_total"] == 1
            assert found["leases_lost_total"] == 0
            assert not sum(found[name] for name in found if name.startswith("fenced_writes"))
        may_end.set()
        await a.has_logged("write_refused")
        found = await counted(await address(a))
        assert found['fenced_writes_refused_total{script="commit"}'] == 1
        assert found["leases_lost_total"] == 1
        assert found["tools_unknown_total"] == 0
        assert not sum(found[name] for name in found if name.startswith("takeovers_total"))
        ids = (":1", "t_1", settings.prefix, a.worker.incarnation)
        labels = [name.partition("{")[2] for name in found]
        assert not [label for label in labels for one in ids if one in label]


async def test_what_the_log_leaves_out_is_counted_all_the_same(
    server: Node, tmp_path: Path
) -> None:
    settings = probed()
    environment = {
        "CHANGEOVER_REDIS_URL": server.url,
        "CHANGEOVER_PREFIX": settings.prefix,
        "CHANGEOVER_PARTITIONS": str(settings.partitions),
        "CHANGEOVER_HEALTH_BIND": f"unix:{tmp_path / 's'}",
        "CHANGEOVER_LOG_LEVEL": "error",
    }
    with processes(tmp_path, environment) as started:
        worker = started.python("w", "-m", "changeover_worker", "tests.support.supervised_app:app")
        outcome = await ask_agent(server, settings, agent="quick")
        assert outcome.ending is Ending.COMPLETED
        found = await counted(f"unix:{tmp_path / 's'}")
        assert found['turns_total{agent="quick",ending="completed"}'] == 1
        assert worker.text == ""


def test_a_worker_that_cannot_listen_does_not_start(server: Node, tmp_path: Path) -> None:
    environment = {
        "CHANGEOVER_REDIS_URL": server.url,
        "CHANGEOVER_PREFIX": own_fleet().prefix,
        "CHANGEOVER_HEALTH_BIND": f"127.0.0.1:{server.port}",
    }
    with processes(tmp_path, environment) as started:
        worker = started.python("w", "-m", "changeover_worker", "tests.support.supervised_app:app")
        assert worker.popen.wait(30) == 78
        assert "cannot listen on '127.0.0.1:" in worker.text
        assert "CHANGEOVER_HEALTH_BIND" in worker.text

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from changeover import Client
from changeover_shared._errors import AppFailed, Invalid, ServerUnfit, StoreUnavailable
from changeover_shared._identifiers import new_incarnation
from changeover_shared._items import AssistantMessage
from changeover_shared._settings import Settings
from changeover_shared._store.keys import route_of
from changeover_shared._store.lease_store import LeaseStore
from changeover_shared._store.records import ClaimRefused, Grant
from changeover_shared._words import Status
from changeover_worker._agent import Agent
from changeover_worker._app import App
from changeover_worker._models.model import Emit, ModelRequest, ModelResponse, TextDelta
from changeover_worker._models.scripted import Entry
from changeover_worker._process.claim_decisions import SOLO
from changeover_worker._process.keeper import LeaseKeeper
from changeover_worker._process.silence import Silence
from changeover_worker._process.sweep import Sweep
from changeover_worker._process.worker import Worker
from changeover_worker.testing import ScriptedModel, fail, say
from tests.support.servers import free_port, running_server, server_process
from tests.support.working import (
    ask_many,
    die,
    eventually,
    eventually_found,
    fail_often,
    own_fleet,
    take,
    working,
)


class Gate:
    """A model that answers when the test opens it."""

    name = "gate"

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.waiting: list[str] = []

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        self.waiting.append(request.session_id)
        await self.open.wait()
        await emit(TextDelta("done"))
        return ModelResponse(AssistantMessage(text="done"))


def quick_app() -> App:
    return App(
        agents=[Agent("quick", model="yes"), Agent("broken", model="no")],
        models={"yes": ScriptedModel.always(say("yes")), "no": ScriptedModel.always(fail())},
    )


def gated(gate: Gate) -> App:
    return App(agents=[Agent("slow", model="gate")], models={"gate": gate})


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_server() as url:
        yield url


@asynccontextmanager
async def fleet(url: str, **given: object) -> AsyncIterator[tuple[Settings, Client, LeaseStore]]:
    """A fleet of its own with somebody to submit and somebody to look."""
    settings = own_fleet(**given)
    async with Client(url, settings=settings) as client:
        store = await LeaseStore.open(url, settings)
        try:
            yield settings, client, store
        finally:
            await store.aclose()


async def status(store: LeaseStore, session_id: str) -> Status:
    head = await store.read_head(session_id)
    assert head is not None
    return head.status


async def held_by(store: LeaseStore) -> dict[str, str]:
    """Session -> incarnation that holds it."""
    found: dict[str, str] = {}
    for at in store.keys.all:
        flat = await store.executor.command("HGETALL", at.named("owners"))
        for session, token in zip(flat[::2], flat[1::2], strict=True):
            found[session.decode()] = token.decode().split("|")[1]
    return found


async def test_every_session_that_waits_is_claimed_and_run(url: str) -> None:
    async with fleet(url) as (settings, client, _):
        receipts = await ask_many(client, "quick", 50)
        async with working(quick_app(), settings, url) as at:
            outcomes = [await client.wait(r.session_id, r.submission_id) for r in receipts]
            assert {o.text for o in outcomes} == {"yes"}
            claimed = await at.has_logged("session_claimed", 50)
            assert {(one["queue"], one["fence"], one["inbox"]) for one in claimed} == {
                ("quick", 1, 1)
            }


async def test_what_an_agent_wants_of_messages_holds_from_its_workers_start_on(url: str) -> None:
    """Messages without a policy; those that say what they want have it."""
    gate = Gate()
    app = App(agents=[Agent("slow", model="gate", policy="join")], models={"gate": gate})
    async with fleet(url) as (settings, client, store), working(app, settings, url):
        await client.submit("s", "first", agent="slow")
        await eventually(lambda: gate.waiting == ["s"], "the first one runs")
        for id, policy in (("a", None), ("b", None), ("c", "enqueue")):
            await client.submit("s", id, id=id, policy=policy)  # type: ignore[arg-type]
        waiting = (await store.read_work("s")).waiting
        assert [one.kind for one in waiting] == ["join", "join", "join", "turn"]
        gate.open.set()
        turns = [(await client.wait("s", id)).turn_id for id in ("a", "b", "c")]
        assert turns == ["t_2", "t_2", "t_3"]


async def test_a_worker_holds_no_more_sessions_than_it_has_slots(url: str) -> None:
    gate = Gate()
    async with fleet(url, concurrency=3) as (settings, client, store):
        receipts = await ask_many(client, "slow", 8)
        async with working(gated(gate), settings, url):
            await eventually(lambda: len(gate.waiting) == 3, "three sessions run")
            held = await held_by(store)
            states = [await status(store, r.session_id) for r in receipts]
            assert len(held) == 3
            assert states.count(Status.READY) == 5
            gate.open.set()
            for r in receipts:
                assert (await client.wait(r.session_id, r.submission_id)).text == "done"


async def test_a_worker_claims_only_from_the_queues_that_it_serves(url: str) -> None:
    async with fleet(url) as (settings, client, store):
        mine, other = "quick:0", "elsewhere:0"
        await client.submit(other, "hello", agent="elsewhere")
        receipt = await client.submit(mine, "hello", agent="quick")
        async with working(quick_app(), settings, url):
            await client.wait(mine, receipt.submission_id)
            assert await status(store, other) is Status.READY
            head = await store.read_head(other)
            assert head is not None
            assert head.fence == 0


async def test_work_whose_ring_was_lost_is_found_by_the_sweep(url: str) -> None:
    """Hole 42."""
    async with fleet(url) as (settings, client, store):
        async with working(quick_app(), settings, url):
            receipt = await client.submit("quick:1", "hello", agent="quick")
            await client.wait("quick:1", receipt.submission_id)
        receipt = await client.submit("quick:2", "hello", agent="quick")
        await store.executor.command("DEL", store.keys.bell(route_of("quick")))
        async with working(quick_app(), settings, url):
            assert (await client.wait("quick:2", receipt.submission_id)).text == "yes"


async def test_the_sweep_places_what_a_dead_worker_held_whoever_serves_it(url: str) -> None:
    async with fleet(url) as (settings, client, store):
        await client.submit("elsewhere:0", "hello", agent="elsewhere")
        await take(store, "elsewhere:0", new_incarnation("dead"), ttl_ms=1)
        assert await status(store, "elsewhere:0") is Status.HELD

        async def placed() -> bool:
            return await status(store, "elsewhere:0") is Status.READY

        async with working(quick_app(), settings, url):
            await eventually_found(placed, "the session was placed")


async def test_a_session_of_a_dead_worker_is_taken_over(url: str) -> None:
    async with fleet(url) as (settings, client, store):
        receipt = await client.submit("quick:1", "hello", agent="quick")
        await take(store, "quick:1", new_incarnation("dead"), ttl_ms=1)
        async with working(quick_app(), settings, url) as at:
            assert (await client.wait("quick:1", receipt.submission_id)).text == "yes"
            (taken,) = await at.has_logged("session_taken")
            assert (taken["from"], taken["fence"], taken["reason"]) == ("dead", 2, "taken_over")


async def test_a_suspect_waits_for_a_process_that_holds_nothing(url: str) -> None:
    gate = Gate()
    async with fleet(url) as (settings, client, store):
        await client.submit("slow:suspect", "hello", agent="slow")
        await fail_often(store, "slow:suspect", 2)
        last = await take(store, "slow:suspect", new_incarnation("x"), ttl_ms=600_000)
        await client.submit("slow:busy", "hello", agent="slow")
        async with working(gated(gate), settings, url) as at:
            await eventually(lambda: gate.waiting == ["slow:busy"], "the worker is busy")
            await die(store, "slow:suspect", last)
            await eventually_found(lambda: rung(store, "slow", SOLO), "the sweep rang for it")
            assert await status(store, "slow:suspect") is Status.READY
            assert list(await held_by(store)) == ["slow:busy"]
            gate.open.set()
            await at.has_logged("turn_ended", 2)
            assert gate.waiting == ["slow:busy", "slow:suspect"]


async def test_a_fleet_that_is_never_idle_makes_room_for_a_suspect(url: str) -> None:
    suspect_ran = asyncio.Event()

    class Endless:
        """Always two turns at once, until the suspect has had its own."""

        name = "endless"

        def __init__(self, client: Client) -> None:
            self.client = client
            self.count = 0

        async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
            if request.session_id == "slow:suspect":
                suspect_ran.set()
            elif not suspect_ran.is_set():
                self.count += 1
                await self.client.submit(f"slow:{self.count + 2}", "hello", agent="slow")
                await asyncio.sleep(0.05)
            return ModelResponse(AssistantMessage(text="done"))

    short = {"lease": "600ms", "renew": "200ms", "margin": "100ms", "concurrency": 4}
    async with fleet(url, **short) as (settings, client, store):
        await client.submit("slow:suspect", "hello", agent="slow")
        await fail_often(store, "slow:suspect", 2)
        last = await take(store, "slow:suspect", new_incarnation("x"), ttl_ms=600_000)
        model = Endless(client)
        app = App(agents=[Agent("slow", model="endless")], models={"endless": model})
        await ask_many(client, "slow", 3)
        async with working(app, settings, url) as at:
            await eventually(lambda: model.count > 3, "the worker is busy")
            await die(store, "slow:suspect", last)
            await eventually(suspect_ran.is_set, "the suspect runs", at.task)


async def test_without_hints_a_suspect_has_its_chance_beside_routes_that_never_run_dry(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(self: LeaseStore, *_: Any, **__: Any) -> None:
        raise StoreUnavailable(reason="the bells are silent")

    monkeypatch.setattr(LeaseStore, "wait_bell", silent)
    monkeypatch.setattr(Silence, "LIMIT_S", 0.0)
    async with fleet(url, partitions=1, concurrency=1) as (settings, client, store):
        suspect = await client.submit("quick:suspect", "hello", agent="quick")
        await fail_often(store, "quick:suspect", 3)
        await ask_many(client, "quick", 60)
        async with working(quick_app(), settings, url):
            await client.wait("quick:suspect", suspect.submission_id, timeout="20s")
            states = [await status(store, f"quick:{n}") for n in range(60)]
            assert Status.READY in states


async def test_nothing_is_claimed_beside_a_suspect(url: str) -> None:
    gate = Gate()
    async with fleet(url) as (settings, client, store):
        await client.submit("slow:suspect", "hello", agent="slow")
        await fail_often(store, "slow:suspect", 3)
        async with working(gated(gate), settings, url) as at:
            await eventually(lambda: gate.waiting == ["slow:suspect"], "the suspect runs")
            await ask_many(client, "slow", 4)
            assert await rung(store, "slow")
            assert list(await held_by(store)) == ["slow:suspect"]
            gate.open.set()
            await at.has_logged("turn_ended", 5)


async def rung(store: LeaseStore, queue: str, suffix: str = "") -> bool:
    """Whether a ring lies there that nobody has heard."""
    return bool(await store.executor.command("ZCARD", store.keys.bell(route_of(queue) + suffix)))


async def test_a_drained_worker_hands_over_and_leaves_nothing_behind(url: str) -> None:
    """Case M6: a whole worker leaves no lease of any of its sessions."""
    gate = Gate()
    async with fleet(url, drain_grace="100ms") as (settings, client, store):
        receipts = await ask_many(client, "slow", 3)
        async with working(gated(gate), settings, url, name="old") as old:
            await eventually(lambda: len(gate.waiting) == 3, "three sessions run")
            old.worker.drain("deploy")
            end = await old.task
            assert not end.forced
            assert await held_by(store) == {}
            assert await store.registry() == ()
            assert {await status(store, r.session_id) for r in receipts} == {Status.READY}
            (started,) = old.logged("drain_started")
            assert (started["reason"], started["sessions"]) == ("deploy", 3)
            (drained,) = old.logged("drained")
            assert drained["forced"] == 3
            assert len(old.logged("session_handed_off")) == 3
        gate.open.set()
        async with working(gated(gate), settings, url, name="new") as new:
            for r in receipts:
                assert (await client.wait(r.session_id, r.submission_id)).text == "done"
            taken = await new.has_logged("session_taken", 3)
            assert {(one["from"], one["reason"]) for one in taken} == {("old", "handed_off")}


async def test_a_drain_lets_a_turn_reach_its_end_within_the_grace(url: str) -> None:
    gate = Gate()
    async with fleet(url) as (settings, client, _):
        receipt = await client.submit("slow:1", "hello", agent="slow")
        async with working(gated(gate), settings, url) as at:
            await eventually(lambda: bool(gate.waiting), "the session runs")
            at.worker.drain("deploy")
            await at.has_logged("drain_started")
            gate.open.set()
            assert not (await at.task).forced
            assert at.logged("drained")[0]["forced"] == 0
            assert (await client.wait("slow:1", receipt.submission_id)).text == "done"


async def test_a_second_drain_hands_off_at_once(url: str) -> None:
    gate = Gate()
    async with fleet(url, drain_grace="10m") as (settings, client, store):
        await client.submit("slow:1", "hello", agent="slow")
        async with working(gated(gate), settings, url) as at:
            await eventually(lambda: bool(gate.waiting), "the session runs")
            at.worker.drain("SIGTERM")
            at.worker.drain("SIGTERM")
            assert (await at.task).forced
            assert await status(store, "slow:1") is Status.READY
            head = await store.read_head("slow:1")
            assert head is not None
            assert head.attempts == 0


async def test_a_drain_awaits_the_claim_in_flight_and_gives_its_grants_back(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hole 24: nobody else would know of that lease."""
    claim, asked, answer = LeaseStore.claim, asyncio.Event(), asyncio.Event()

    async def slow(self: LeaseStore, *args: Any, **named: Any) -> tuple[Grant | ClaimRefused, ...]:
        granted = await claim(self, *args, **named)
        asked.set()
        await answer.wait()
        return granted

    monkeypatch.setattr(LeaseStore, "claim", slow)
    gate = Gate()
    async with fleet(url) as (settings, client, store):
        await client.submit("slow:1", "hello", agent="slow")
        async with working(gated(gate), settings, url) as at:
            await asked.wait()
            assert await status(store, "slow:1") is Status.HELD
            at.worker.drain("deploy")
            await at.has_logged("drain_started")
            assert not at.task.done()
            answer.set()
            assert not (await at.task).forced
            assert gate.waiting == []
            assert await status(store, "slow:1") is Status.READY
            head = await store.read_head("slow:1")
            assert head is not None
            assert (head.fence, head.attempts) == (1, 0)


async def test_a_grant_that_is_not_to_be_trusted_any_more_is_given_back_and_not_run(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, late = LeaseStore.claim, [True]

    async def answer(self: LeaseStore, *a: Any, **named: Any) -> tuple[Grant | ClaimRefused, ...]:
        answers = await claim(self, *a, **named)
        if late and any(isinstance(one, Grant) for one in answers):
            late.clear()
            return tuple(replace(one, remaining_ms=1) for one in answers)
        return answers

    asked: list[str] = []

    def yes(request: ModelRequest) -> Entry:
        asked.append(request.session_id)
        return say("yes")

    app = App(agents=[Agent("quick", model="m")], models={"m": ScriptedModel.by(yes)})
    async with fleet(url) as (settings, client, store):
        receipt = await client.submit("quick:1", "hello", agent="quick")
        monkeypatch.setattr(LeaseStore, "claim", answer)
        async with working(app, settings, url) as at:
            assert (await client.wait("quick:1", receipt.submission_id)).text == "yes"
            assert asked == ["quick:1"]
            assert at.logged("lease_lost") == []
            head = await store.read_head("quick:1")
            assert head is not None
            assert head.fence == 2


@pytest.mark.parametrize("error", [OSError("no database"), SystemExit("no database")])
async def test_a_lifespan_that_cannot_be_entered_keeps_the_worker_from_starting(
    url: str, error: BaseException
) -> None:
    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[None]:
        raise error
        yield

    model = ScriptedModel.always(say("yes"))
    app = App(agents=[Agent("quick", model="m")], models={"m": model}, lifespan=lifespan)
    async with fleet(url) as (settings, client, store):
        await client.submit("quick:1", "hello", agent="quick")
        with pytest.raises(AppFailed, match="no database"):
            await Worker(app, settings, url).run()
        assert await status(store, "quick:1") is Status.READY
        assert await store.registry() == ()


async def test_a_write_after_the_lease_has_ended_is_logged_with_the_script_that_refused_it(
    url: str,
) -> None:
    gate = Gate()
    async with fleet(url) as (settings, client, store):
        receipt = await client.submit("slow:1", "hello", agent="slow")
        async with working(gated(gate), settings, url) as at:
            await eventually(lambda: bool(gate.waiting), "the session runs")
            assert await store.evict(at.worker.incarnation) == 1
            gate.open.set()
            (refused,) = await at.has_logged("write_refused")
            assert refused["script"] == "commit"
            # The sweep may have placed the session meanwhile.
            assert refused["word"] in ("lease_expired", "lease_gone", "lease_lost")
            assert (refused["session"], refused["fence"]) == ("slow:1", 1)
            assert (await client.wait("slow:1", receipt.submission_id)).text == "done"


async def test_a_lifespan_that_cannot_be_left_is_logged_and_the_worker_has_drained(
    url: str,
) -> None:
    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[None]:
        yield
        raise OSError("no goodbye")

    model = ScriptedModel.always(say("yes"))
    app = App(agents=[Agent("quick", model="m")], models={"m": model}, lifespan=lifespan)
    async with fleet(url) as (settings, _, _), working(app, settings, url) as at:
        at.worker.drain("deploy")
        assert not (await at.task).forced
        (said,) = at.logged("warning")[-1:]
        assert said["code"] == "app_failed"
        assert at.logged("drained")


async def test_a_paused_worker_claims_nothing_and_goes_on_with_what_it_holds(url: str) -> None:
    gate = Gate()
    async with fleet(url) as (settings, client, store):
        first = await client.submit("slow:1", "hello", agent="slow")
        async with working(gated(gate), settings, url) as at:
            await eventually(lambda: bool(gate.waiting), "the session runs")
            at.worker.pause()
            await client.submit("slow:2", "hello", agent="slow")
            gate.open.set()
            assert (await client.wait("slow:1", first.submission_id)).text == "done"
            assert await status(store, "slow:2") is Status.READY
            assert gate.waiting == ["slow:1"]


async def test_a_worker_outlives_the_loss_of_all_its_connections(url: str) -> None:
    async with (
        fleet(url) as (settings, client, store),
        working(quick_app(), settings, url) as at,
    ):
        await store.executor.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        await at.has_logged("redis_lost")
        await at.has_logged("redis_back")
        receipt = await client.submit("quick:1", "hello", agent="quick")
        assert (await client.wait("quick:1", receipt.submission_id)).text == "yes"


async def test_a_worker_can_be_drained_while_redis_hangs() -> None:
    gate = Gate()
    with server_process() as server:
        async with fleet(server.url, drain_grace="100ms") as (settings, client, _):
            await client.submit("slow:1", "hello", agent="slow")
            async with working(gated(gate), settings, server.url) as at:
                await eventually(lambda: bool(gate.waiting), "the session runs")
                server.process.send_signal(signal.SIGSTOP)
                at.worker.drain("deploy")
                await at.task
                server.process.send_signal(signal.SIGCONT)
                (said,) = at.logged("warning")[-1:]
                assert said["code"] == "not_evicted"


async def test_a_burst_ends_when_nothing_is_left_and_counts_failures(url: str) -> None:
    async with fleet(url) as (settings, client, store):
        receipts = [*await ask_many(client, "quick", 20), *await ask_many(client, "broken", 2)]
        async with working(quick_app(), settings, url, burst=True) as at:
            end = await at.task
            assert (end.forced, end.failed_turns) == (False, 2)
            assert {await status(store, r.session_id) for r in receipts} == {Status.IDLE}


async def test_a_part_that_fails_takes_the_worker_down_in_order(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = asyncio.Event()

    async def breaks(self: Sweep) -> None:
        await broken.wait()
        raise RuntimeError("a bug")

    monkeypatch.setattr(Sweep, "run", breaks)
    gate = Gate()
    async with fleet(url, drain_grace="100ms") as (settings, client, store):
        await client.submit("slow:1", "hello", agent="slow")
        async with working(gated(gate), settings, url) as at:
            await eventually(lambda: bool(gate.waiting), "the session runs")
            broken.set()
            with pytest.raises(RuntimeError, match="a bug"):
                await at.task
            assert await status(store, "slow:1") is Status.READY
            assert at.logged("drain_started")[0]["reason"] == "sweep failed"


async def test_a_keeper_that_fails_stops_what_it_kept_and_the_worker(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = threading.Event()

    async def breaks(self: LeaseKeeper) -> None:
        await asyncio.to_thread(broken.wait)
        raise RuntimeError("a bug")

    monkeypatch.setattr(LeaseKeeper, "_watch", breaks)
    gate = Gate()
    async with fleet(url) as (settings, client, store):
        await client.submit("slow:1", "hello", agent="slow")
        async with working(gated(gate), settings, url) as at:
            await eventually(lambda: bool(gate.waiting), "the session runs")
            broken.set()
            with pytest.raises(RuntimeError, match="a bug"):
                await at.task
            assert len(at.logged("lease_lost")) == 1
            assert await status(store, "slow:1") is Status.READY


async def test_the_registry_says_who_runs(url: str) -> None:
    async with (
        fleet(url, build="1.5") as (settings, _, store),
        working(quick_app(), settings, url, name="w-1") as at,
    ):

        async def registered() -> bool:
            return bool(await store.registry())

        await eventually_found(registered, "the worker is registered")
        (info,) = await store.registry()
        assert (info.worker, info.incarnation) == ("w-1", at.worker.incarnation)
        assert (info.build, info.state, info.slots) == ("1.5", "running", 200)
        assert info.queues == info.agents == ("quick", "broken")
        assert 0 < info.started_at_ms <= info.renewed_at_ms


async def test_the_registry_says_what_a_worker_has_done_for_each_queue(url: str) -> None:
    gate = Gate()
    async with fleet(url, renew="100ms") as (settings, client, store):
        await client.submit("slow:1", "hello", agent="slow")
        await take(store, "slow:1", new_incarnation("dead"), ttl_ms=1)
        async with working(gated(gate), settings, url):

            async def holds(sessions: int, turns: int) -> bool:
                found = [one.activity.get("slow") for one in await store.registry()]
                seen = [
                    (one.sessions, one.claims, one.takeovers, one.turns) for one in found if one
                ]
                return seen == [(sessions, 1, 1, turns)]

            await eventually_found(lambda: holds(1, 0), "it says that it holds the session")
            gate.open.set()
            await eventually_found(lambda: holds(0, 1), "it says that the turn has ended")
            (info,) = await store.registry()
            assert (info.activity["slow"].recent_turns, info.recent_ms > 0) == (1, True)


async def test_a_worker_without_redis_does_not_start() -> None:
    with pytest.raises(StoreUnavailable):
        await Worker(quick_app(), own_fleet(), f"redis://127.0.0.1:{free_port()}/0").run()


async def test_a_worker_does_not_start_on_a_server_that_would_delete_work() -> None:
    args = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]
    with running_server(args=args) as url, pytest.raises(ServerUnfit, match="allkeys-lru"):
        await Worker(quick_app(), own_fleet(), url).run()


def test_an_app_without_agents_needs_a_queue() -> None:
    with pytest.raises(Invalid, match="nothing to serve"):
        Worker(App(), own_fleet(), "redis://localhost")


@pytest.mark.parametrize(
    ("field", "value", "cause", "attempts"),
    [("attempts", 5, "attempts", 5), ("lost_ms", 10**6, "time", 0)],
)
async def test_a_worker_that_stops_a_session_says_why(
    url: str, field: str, value: int, cause: str, attempts: int
) -> None:
    async with fleet(url) as (settings, client, store):
        await client.submit("s", "hello", agent="quick")
        head = store.keys.of("s").session("s", "head")
        died = '"the worker exited with code 7"'
        await store.executor.command("HSET", head, field, value, "lapsed_error", died)
        async with working(quick_app(), settings, url) as at:
            (told,) = await at.has_logged("session_quarantined")
        assert (told["session"], told["cause"], told["attempts"]) == ("s", cause, attempts)
        assert told["error"] == "the worker exited with code 7"
        assert await status(store, "s") is Status.QUARANTINED

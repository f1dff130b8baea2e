"""Limits of models: what a whole fleet may ask, and who waits for it without a slot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from changeover import Ending, Operator
from changeover_shared._checkpoint import Checkpoint, decode_checkpoint
from changeover_shared._errors import Invalid, StoreUnavailable
from changeover_shared._events import StepCompleted, TurnFailed, TurnParked, Warned
from changeover_shared._items import AssistantMessage, Usage
from changeover_shared._ops import CompactOp
from changeover_shared._settings import Settings
from changeover_shared._store.lease_store import LeaseStore
from changeover_shared._store.records import Asked, Bucket
from changeover_shared._words import Status, StepEnding
from changeover_worker import Agent, App, Compaction, Fallback, Limit, Turn
from changeover_worker._models.model import Emit, ModelRequest, ModelResponse, UsageDelta
from changeover_worker._session import asking, limiting
from changeover_worker.testing import ScriptedModel, fail, say
from tests.support.holding import Bench, bench, until, until_so
from tests.support.servers import SERVERS, running_server
from tests.support.working import Working, eventually, eventually_found, own_fleet, working

ONE = Limit(requests_per_minute=1)
MINUTE_MS = 60_000
HOUR_MS = 3_600_000


class Busy:
    """A model that answers when it is told to."""

    name = "busy"

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.running: set[str] = set()
        self.most = 0
        self.gate = asyncio.Event()

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        self.asked.append(request.session_id)
        self.running.add(request.session_id)
        self.most = max(self.most, len(self.running))
        try:
            await self.gate.wait()
        finally:
            self.running.discard(request.session_id)
        return ModelResponse(AssistantMessage(text="done"))


def app_of(model: Any, limit: Limit = ONE, **agent: Any) -> App:
    return App(
        agents=[Agent("bot", model="main", **agent)], models={"main": model}, limits={"main": limit}
    )


@pytest.fixture
def nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no worker wait for anything: every wait is a park, for as long as it is."""
    for module in (asking, limiting):
        monkeypatch.setattr(module, "HELD_PAUSE_MS", 0)


@pytest.fixture
def waits_for_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers wait in the slot, so that only what the test does can end it."""
    for module in (asking, limiting):
        monkeypatch.setattr(module, "HELD_PAUSE_MS", HOUR_MS)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_server(SERVERS[-1]) as server:
        yield server


# What passes


async def pass_time(on: Any, ms: float, *names: str) -> None:
    """Let time pass for the buckets of models: what was written comes nearer."""
    command = on.executor.command
    for name in names or ("main",):
        keys = on.keys.limits.model(name)
        for field in ("requests", "tokens", "line", "slots", "closed"):
            value = await command("HGET", keys["bucket"], field)
            if value and float(value) > 0:
                await command("HSET", keys["bucket"], field, f"{float(value) - ms:.3f}")
        for part in ("running", "line", "kept"):
            for member in await command("ZRANGE", keys[part], 0, -1):
                await command("ZINCRBY", keys[part], -ms, member)


async def wake(on: Any, *sessions: str) -> None:
    """Let the time of parked sessions have come."""
    for session in sessions:
        at = on.keys.of(session)
        work = at.session(session, "work")
        flat = await on.executor.command("HGETALL", work)
        for name, value in zip(flat[::2], flat[1::2], strict=True):
            parts = value.decode().split("|")
            if name.startswith(b"w:") and int(parts[1]):
                parts[1] = "1"
                await on.executor.command("HSET", work, name, "|".join(parts))
        for route in await on.reap(at.partition, [session]):
            await on.ring(route, [at.partition])


async def checkpoint_of(on: Bench) -> Checkpoint:
    body = await on.stores.worker.read_checkpoint(on.session)
    assert body is not None
    return decode_checkpoint(body, session_id=on.session)


async def line_of(on: Bench, part: str = "line", model: str = "main") -> list[str]:
    keys = on.stores.worker.keys.limits.model(model)
    return [one.decode() for one in await on.stores.executor.command("ZRANGE", keys[part], 0, -1)]


async def use_up(on: Bench, limit: Limit = ONE, model: str = "main") -> None:
    """Let another session have asked all that may be asked."""
    asked = Asked("other", "other-1", 10, (Bucket(model, "", *limit.of_all),))
    answer = await on.stores.worker.ask_limit(asked, span_ms=30_000, longest_ms=HOUR_MS)
    assert answer.wait_ms == 0


# Two workers


@pytest.mark.usefixtures("nobody_waits")
async def test_two_workers_ask_no_more_than_may_be_and_all_are_answered_in_turn(url: str) -> None:
    """Each of the others parks, without a slot, and asks at its own time."""
    settings = own_fleet(concurrency=1)
    model = Busy()
    model.gate.set()
    limit = Limit(requests_per_minute=2)
    sessions = [f"s{i}" for i in range(5)]
    async with (
        working(app_of(model, limit), settings, url, name="a") as a,
        working(app_of(model, limit), settings, url, name="b") as b,
        looking(url, settings) as store,
        Operator(url, settings=settings) as client,
    ):
        sent = [await client.submit(one, "hello", agent="bot") for one in sessions]
        await eventually(lambda: parked(a, b) == 4, "all but one are parked")
        assert len(model.asked) == 1
        line = await in_line(store)
        assert len(line) == 4

        async def is_settled(turn: int) -> bool:
            heads = [await store.read_head(one) for one in line[turn + 1 :]]
            statuses = {head.status for head in heads if head is not None}
            return statuses <= {Status.PARKED} and len(model.asked) >= turn + 2

        for turn in range(4):
            await pass_time(store, MINUTE_MS / 2 + 10_000)
            await wake(store, *line[turn:])
            await eventually_found(
                partial(is_settled, turn), "one more is asked, and the others are parked again"
            )
            assert len(model.asked) == turn + 2
        assert model.asked[1:] == line
        for one in sent:
            outcome = await client.wait(one.session_id, one.submission_id, timeout="20s")
            assert (outcome.ending, outcome.text) == (Ending.COMPLETED, "done")
        assert {entry["model"] for entry in a.logged("limiter_parked")} <= {"main"}


@asynccontextmanager
async def looking(url: str, settings: Settings) -> AsyncIterator[LeaseStore]:
    """The store beside the workers."""
    store = await LeaseStore.open(url, settings)
    try:
        yield store
    finally:
        await store.aclose()


def parked(*workers: Working) -> int:
    return sum(len(one.logged("limiter_parked")) for one in workers)


async def in_line(store: Any) -> list[str]:
    """The sessions that wait for the model, in the order of their places."""
    key = store.keys.limits.model("main")["line"]
    places = await store.executor.command("ZRANGE", key, 0, -1)
    return [place.decode().partition("|")[0] for place in places]


@pytest.mark.usefixtures("nobody_waits")
async def test_two_workers_together_run_no_more_at_once_and_keep_no_slot(url: str) -> None:
    settings = own_fleet(concurrency=2)
    busy = Busy()

    def app() -> App:
        return App(
            agents=[Agent("bot", model="main"), Agent("near", model="near")],
            models={"main": busy, "near": ScriptedModel.always(say("at once"))},
            limits={"main": Limit(concurrency=2)},
        )

    sessions = [f"s{i}" for i in range(6)]
    async with (
        working(app(), settings, url, name="a") as a,
        working(app(), settings, url, name="b") as b,
        Operator(url, settings=settings) as client,
    ):
        sent = [await client.submit(one, "hello", agent="bot") for one in sessions]
        await eventually(lambda: parked(a, b) >= 4, "those above the limit are parked")
        assert len(busy.running) == 2
        near = await client.submit("near", "hello", agent="near")
        assert (await client.wait("near", near.submission_id, timeout="20s")).text == "at once"
        busy.gate.set()
        for one in sent:
            outcome = await client.wait(one.session_id, one.submission_id, timeout="30s")
            assert outcome.ending is Ending.COMPLETED
        assert busy.most == 2


async def test_a_429_at_one_worker_keeps_the_other_from_asking(url: str) -> None:
    settings = own_fleet()
    refuses = ScriptedModel(
        fail("provider_rate_limit", "429", retryable=True, retry_after="60s"), say("again")
    )
    answers = ScriptedModel.always(say("hello"))

    def app(agent: str, model: ScriptedModel) -> App:
        return App(
            agents=[Agent(agent, model="main")], models={"main": model}, limits={"main": Limit()}
        )

    async with (
        working(app("one", refuses), settings, url, name="a") as a,
        working(app("two", answers), settings, url, name="b") as b,
        looking(url, settings) as store,
        Operator(url, settings=settings) as client,
    ):
        first = await client.submit("x", "hello", agent="one")
        await a.has_logged("session_parked")
        second = await client.submit("y", "hello", agent="two")
        (entry,) = await b.has_logged("limiter_parked")
        assert entry["model"] == "main" and 50 < entry["s"] <= 60.1
        assert answers.requests == []
        for session in ("x", "y"):
            explained = await client.explain(session)
            assert (explained.code, explained.facts["model"]) == ("rate_limited", "main")
        await pass_time(store, MINUTE_MS + 1000)
        assert answers.requests == []
        await wake(store, "y")
        outcome = await client.wait("y", second.submission_id, timeout="20s")
        assert (outcome.text, outcome.takeovers) == ("hello", 0)
        assert first.session_id == "x" and len(refuses.requests) == 1


# What a wait is, and is not


async def test_a_wait_is_no_attempt_and_nothing_that_counts(nobody_waits: None) -> None:
    async with bench(model_retries=0) as on:
        await on.submit("go")
        await use_up(on)
        model = ScriptedModel(say("Hello.", usage=Usage(input_tokens=2)))
        for turn in range(3):
            assert (await on.run(app_of(model))).how == "released"
            assert await on.status() is Status.PARKED
            execution = (await checkpoint_of(on)).execution
            assert execution is not None and execution.retry is not None
            assert (execution.retry.attempt, execution.retry.kind) == (0, "limit")
            assert (execution.retry.model, execution.model_calls) == ("main", 0)
            if turn == 2:
                await pass_time(on.stores.worker, MINUTE_MS)
            await on.pass_time(MINUTE_MS)
        await on.run(app_of(model))
        assert await on.ending() is Ending.COMPLETED
        assert (await checkpoint_of(on)).stats.model_calls == len(model.requests) == 1
        events = await on.events()
        ends = [one for one in events if isinstance(one, StepCompleted)]
        assert [one.ending for one in ends] == [StepEnding.RETRYING] * 3 + [StepEnding.COMPLETED]
        assert [one.reason for one in events if isinstance(one, TurnParked)] == ["retry"] * 3
        head = await on.stores.worker.read_head(on.session)
        assert head is not None and head.attempts == 0


async def test_a_session_that_waits_longer_than_anybody_does_fails(nobody_waits: None) -> None:
    async with bench() as on:
        await on.submit("go")
        for number in range(61):
            asked = Asked(f"p{number}", f"r{number}", 1, (Bucket("main", "", *ONE.of_all),))
            await on.stores.worker.ask_limit(asked, span_ms=30_000, longest_ms=HOUR_MS)
        model = ScriptedModel(say("never"))
        await on.run(app_of(model))
        (failed,) = [one for one in await on.events() if isinstance(one, TurnFailed)]
        assert failed.error.kind == "provider_rate_limit" and failed.error.retryable
        assert "nobody waits for over an hour" in failed.error.message
        assert model.requests == []


async def test_an_interrupt_ends_the_wait_in_a_slot_and_gives_the_place_back(
    waits_for_an_hour: None,
) -> None:
    async with bench() as on:
        await on.submit("go")
        await use_up(on)
        model = ScriptedModel(say("never"))
        run, held = await on.begin(app_of(model))
        await until(lambda: bool(held._waiters), "the worker waits")
        assert len(await line_of(on)) == 1
        await on.interrupt()
        await on.hear(held)
        async with asyncio.timeout(10):
            await run
        assert (await on.ending(), model.requests) == (Ending.ABORTED, [])
        await nobody_in_line(on)


async def test_an_interrupt_of_a_parked_session_gives_its_place_back(nobody_waits: None) -> None:
    async with bench() as on:
        await on.submit("go")
        await use_up(on)
        model = ScriptedModel(say("never"))
        await on.run(app_of(model))
        assert len(await line_of(on)) == 1
        await on.interrupt()
        await on.run(app_of(model))
        assert (await on.ending(), model.requests) == (Ending.ABORTED, [])
        await nobody_in_line(on)


async def nobody_in_line(on: Bench, model: str = "main") -> None:
    async def so() -> bool:
        return not await line_of(on, model=model)

    await until_so(so, "nobody is in the line")


async def test_a_drain_ends_the_wait_and_the_next_worker_keeps_the_place(
    waits_for_an_hour: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench() as on:
        await on.submit("go")
        await use_up(on)
        model = ScriptedModel(say("Hello."))
        app = app_of(model, on_takeover="abort")
        run, held = await on.begin(app)
        await until(lambda: bool(held._waiters), "the worker waits")
        held.drain()
        async with asyncio.timeout(10):
            assert (await run).how == "handed_off"
        place = await line_of(on)
        assert len(place) == 1
        await pass_time(on.stores.worker, MINUTE_MS)
        clock = on.stores.worker.clock
        clock.ahead_ms += MINUTE_MS  # type: ignore[attr-defined]
        await on.run(app, "w:00000002")
        assert (await on.ending(), len(model.requests)) == (Ending.COMPLETED, 1)
        assert await line_of(on) == []


async def test_a_short_wait_is_waited_in_the_slot() -> None:
    async with bench() as on:
        await on.submit("go")
        limit = Limit(requests_per_minute=1100)
        for number in range(91 + 3):
            asked = Asked(f"p{number}", f"r{number}", 1, (Bucket("main", "", *limit.of_all),))
            await on.stores.worker.ask_limit(asked, span_ms=30_000, longest_ms=HOUR_MS)
        model = ScriptedModel(say("Hello."))
        await on.run(app_of(model, limit))
        assert await on.ending() is Ending.COMPLETED
        assert "turn_parked" not in await on.types()


async def test_a_lost_session_says_nothing_more_from_its_wait(waits_for_an_hour: None) -> None:
    async with bench() as on:
        await on.submit("go")
        await use_up(on)
        run, held = await on.begin(app_of(ScriptedModel(say("never"))))
        await until(lambda: bool(held._waiters), "the worker waits")
        place = await line_of(on)
        await on.die(run, held)
        assert await line_of(on) == place, "who takes it over goes on with it"


# What is taken and given back


async def test_a_worker_that_is_killed_keeps_its_place_among_those_that_run_for_a_while(
    nobody_waits: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = Limit(concurrency=1)
    async with bench() as on:
        await on.submit("go")
        busy = Busy()
        run, held = await on.begin(app_of(busy, limit))
        await until(lambda: bool(busy.running), "the model is asked")

        async def unsaid(*_: Any, **__: Any) -> None:
            """What a killed worker says."""

        with monkeypatch.context() as killed:
            killed.setattr(LeaseStore, "settle_limit", unsaid)
            await on.die(run, held)
        assert len(await line_of(on, "running")) == 1
        model = ScriptedModel(say("Hello."))
        await on.run(app_of(model, limit), "w:00000002")
        assert (await on.status(), model.requests) == (Status.PARKED, [])
        await pass_time(on.stores.worker, 30_000)
        await on.pass_time(MINUTE_MS)
        await on.run(app_of(model, limit), "w:00000002")
        assert await on.ending() is Ending.COMPLETED
        assert await line_of(on, "running") == []


async def test_what_runs_is_extended_and_given_back_at_its_end() -> None:
    async with bench() as on:
        await on.submit("go")
        busy = Busy()
        runner = on.runner(app_of(busy, Limit(concurrency=1)))
        grant = await on.claim()
        run = asyncio.create_task(runner.run(grant, on.hold(grant)))
        await until(lambda: bool(busy.running), "the model is asked")
        await pass_time(on.stores.worker, 29_000)
        (request,) = await line_of(on, "running")
        await runner._limiter.extend()
        key = on.stores.worker.keys.limits.model("main")["running"]
        ends = float(await on.stores.executor.command("ZSCORE", key, request))
        assert ends > on.stores.worker.clock.now_ms() + 25_000
        busy.gate.set()
        async with asyncio.timeout(10):
            await run
        assert await line_of(on, "running") == []
        assert runner._limiter._keeping is None


async def test_the_tokens_of_an_answer_are_counted_and_a_refusal_costs_none() -> None:
    limit = Limit(tokens_per_minute=60_000)
    async with bench() as on:
        await on.submit("x" * 4_000)
        model = ScriptedModel(
            fail("provider_rate_limit", "429", retryable=True),
            say("Hello.", usage=Usage(input_tokens=20_000, output_tokens=10_000)),
        )
        await on.run(app_of(model, limit))
        assert await on.ending() is Ending.COMPLETED
        key = on.stores.worker.keys.limits.model("main")["bucket"]
        paid = float(await on.stores.executor.command("HGET", key, "tokens"))
        assert 25_000 < paid - on.stores.worker.clock.now_ms() <= 30_000


@pytest.mark.parametrize(
    "told",
    [
        Usage(output_tokens=2**53 - 1),
        Usage.model_construct(input_tokens=-(10**9)),
        Usage.model_construct(input_tokens=10**30, output_tokens=10**30),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_model_that_miscounts_is_heard_within_a_limit_as_without_one(
    told: Any, streamed: bool
) -> None:
    class Miscounting:
        name = "miscounting"

        async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
            if streamed:
                await emit(UsageDelta(told))
            usage: Any = Usage() if streamed else told
            return ModelResponse(AssistantMessage(text="done"), usage=usage)

    async with bench() as on:
        await on.submit("go")
        await on.run(app_of(Miscounting(), Limit(tokens_per_minute=1, tenant_concurrency=1)))
        assert await on.ending() is Ending.COMPLETED
        assert await line_of(on, "running") == []


async def test_an_ask_waits_while_redis_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench() as on:
        await on.submit("go")
        fleet = on.stores.worker._fleet
        call, away = type(fleet).call, [2]

        async def broken(self: Any, request: Any) -> Any:
            if request.name == "limit" and away[0]:
                away[0] -= 1
                raise StoreUnavailable(reason="the test says so")
            return await call(self, request)

        monkeypatch.setattr(type(fleet), "call", broken)
        model = ScriptedModel(say("Hello."))
        await on.run(app_of(model))
        assert (await on.ending(), len(model.requests)) == (Ending.COMPLETED, 1)


# What asks


async def test_a_fallback_goes_past_a_model_at_its_limit_and_waits_for_the_first_of_all(
    nobody_waits: None,
) -> None:
    first, second = ScriptedModel(say("first"), name="a"), ScriptedModel(say("second"), name="b")

    def app() -> App:
        return App(
            agents=[Agent("bot", model="main")],
            models={"main": Fallback(first, second)},
            limits={"a": ONE, "b": ONE, "main": Limit(requests_per_minute=6)},
        )

    async with bench() as on:
        await on.submit("go")
        await use_up(on, model="a")
        await on.run(app())
        assert await on.ending() is Ending.COMPLETED
        assert (len(first.requests), len(second.requests)) == (0, 1)
        warned = [one.code for one in await on.events() if isinstance(one, Warned)]
        assert warned == ["model_fallback"]
        await nobody_in_line(on, "a")
        await on.submit("again", "m2")
        await pass_time(on.stores.worker, MINUTE_MS / 6)
        await on.run(app())
        assert await on.status() is Status.PARKED
        execution = (await checkpoint_of(on)).execution
        assert execution is not None and execution.retry is not None
        assert (execution.retry.kind, execution.retry.model) == ("limit", "a")
        await pass_time(on.stores.worker, MINUTE_MS, "a")
        await on.pass_time(MINUTE_MS)
        await on.run(app())
        assert await on.ending("m2") is Ending.COMPLETED
        assert (len(first.requests), len(second.requests)) == (1, 1)


async def test_a_request_that_no_model_behind_it_lets_through_counts_for_nothing(
    nobody_waits: None,
) -> None:
    model = ScriptedModel(say("Hello."), name="a")
    limits = {"a": ONE, "main": ONE}
    app = App(agents=[Agent("bot", model="main")], models={"main": Fallback(model)}, limits=limits)
    async with bench() as on:
        await on.submit("go")
        await use_up(on, model="a")
        await on.run(app)
        assert await on.status() is Status.PARKED
        await pass_time(on.stores.worker, MINUTE_MS, "a")
        await on.pass_time(MINUTE_MS)
        await on.run(app)
        assert await on.ending() is Ending.COMPLETED


async def test_a_handler_waits_as_an_agent_does(nobody_waits: None) -> None:
    model = ScriptedModel(say("Hello."))
    app = App(models={"main": model}, limits={"main": ONE})
    runs: list[str] = []

    @app.handler("bot")
    async def answer(turn: Turn[Any]) -> str:
        runs.append(turn.turn_id)
        return (await turn.model("hello")).message.text

    async with bench(model_retries=0) as on:
        await on.submit("go")
        await use_up(on)
        await on.run(app)
        assert (await on.status(), model.requests) == (Status.PARKED, [])
        await pass_time(on.stores.worker, MINUTE_MS)
        await on.pass_time(MINUTE_MS)
        await on.run(app)
        assert (await on.ending(), len(model.requests), len(runs)) == (Ending.COMPLETED, 1, 2)


@pytest.mark.parametrize("as_op", [False, True])
async def test_a_summary_waits_as_well(nobody_waits: None, as_op: bool) -> None:
    model, writer = ScriptedModel.always(say("ok")), ScriptedModel.always(say("short"))
    how = Compaction(at_tokens=400, keep_tokens=50, model="writer")
    app = App(
        agents=[Agent("bot", model="main", compaction=how)],
        models={"main": model, "writer": writer},
        limits={"writer": ONE},
    )
    async with bench() as on:
        await on.submit("x" * 1_400)
        await on.run(app)
        await use_up(on, model="writer")
        await on.submit(CompactOp() if as_op else "y" * 400, "m2")
        await on.run(app)
        assert (await on.status(), writer.requests) == (Status.PARKED, [])
        await pass_time(on.stores.worker, MINUTE_MS, "writer")
        await on.pass_time(MINUTE_MS)
        await on.run(app)
        assert (await on.ending("m2"), len(writer.requests)) == (Ending.COMPLETED, 1)
        assert "context_compacted" in await on.types()


@pytest.mark.usefixtures("nobody_waits")
@pytest.mark.parametrize("stopped", [False, True])
async def test_who_waited_for_several_models_leaves_no_place_for_those_it_did_not_ask(
    stopped: bool,
) -> None:
    """Nobody moves up into a place that stays empty."""
    first, second = ScriptedModel(say("a"), name="a"), ScriptedModel(say("b"), name="b")
    models: dict[str, Any] = {"main": Fallback(first, second)}
    limits = {"a": ONE, "b": ONE}
    app = App(agents=[Agent("bot", model="main")], models=models, limits=limits)
    async with bench() as on:
        await on.submit("go")
        for name in limits:
            await use_up(on, model=name)
        await on.run(app)
        assert [len(await line_of(on, model=name)) for name in limits] == [1, 1]
        if stopped:
            await on.interrupt()
        else:
            await pass_time(on.stores.worker, MINUTE_MS, "a")
            await on.pass_time(MINUTE_MS)
        await on.run(app)
        assert await on.ending() is (Ending.ABORTED if stopped else Ending.COMPLETED)
        for name in limits:
            await nobody_in_line(on, name)


# What an app takes


def test_limits_are_of_models_that_there_are() -> None:
    models: dict[str, Any] = {
        "main": ScriptedModel(name="x"),
        "two": Fallback(ScriptedModel(name="a"), "openai:gpt-5-mini"),
    }
    for name in ("main", "two", "a", "openai:gpt-5-mini"):
        app = App(models=models, limits={name: ONE})
        assert app.limit(name) == ONE
        assert app.limit("b") is None
    named, other = Limit(name="n", concurrency=1), Limit(name="n", concurrency=2)
    App(models=models, limits={"main": named, "two": named})
    for wrong in ({"x": ONE}, {"main": 5}, {"main": named, "two": other}, [ONE]):
        with pytest.raises(Invalid, match="limits"):
            App(models=models, limits=wrong)  # type: ignore[arg-type]


def test_a_fallback_and_a_model_behind_it_are_not_counted_together() -> None:
    """One question would hold what it waits for itself: with `concurrency=1` for ever."""
    models = {"two": Fallback(ScriptedModel(name="a"), ScriptedModel(name="b"))}
    named = Limit(name="n", concurrency=1)
    App(models=models, limits={"a": named, "b": named})
    for wrong in ({"two": named, "b": named}, {"two": Limit(name="a"), "a": Limit()}):
        with pytest.raises(Invalid, match="count each question twice"):
            App(models=models, limits=wrong)


@pytest.mark.parametrize(
    "given",
    [
        {"requests_per_minute": 0},
        {"tokens_per_minute": -1},
        {"concurrency": True},
        {"tenant_concurrency": 1.5},
        {"tenant_requests_per_minute": "9"},
        {"tenant_tokens_per_minute": 10**10},
        {"name": None},
    ],
)
def test_a_limit_is_made_of_whole_numbers(given: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match=next(iter(given))):
        Limit(**given)

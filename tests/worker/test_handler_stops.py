"""Handlers that are stopped: interrupts, drains, lost leases, time, their own exceptions."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from changeover_shared._errors import LeaseGone
from changeover_shared._items import StepRecord
from changeover_shared._ops import InterruptOp
from changeover_shared._words import Ending
from changeover_worker import (
    ModelError,
    Turn,
)
from changeover_worker._session.handler_run import MAX_CALLS
from changeover_worker._session.held import Held
from changeover_worker._session.runner import RunEnd
from tests.support.handling import Works, app_of, failure, records, report
from tests.support.holding import bench, until


async def test_an_interrupt_ends_the_turn_wherever_its_handler_is() -> None:
    works = Works()
    there = asyncio.Event()

    async def in_step(turn: Turn[Any]) -> None:
        await turn.step("once", works.hangs("once"))

    async def between(turn: Turn[Any]) -> None:
        there.set()
        await asyncio.Event().wait()

    for handler, is_there in ((in_step, lambda: works.ran["once"] > 0), (between, there.is_set)):
        async with bench() as on:
            await on.submit("go")
            run, held = await on.begin(app_of(handler))
            await until(is_there, "the handler is there")
            await on.submit(InterruptOp(reason="enough"), "i1")
            held.alert(1)
            await run
            assert await on.ending() is Ending.ABORTED
            unknown = [StepRecord(name="once", unknown=True)] if handler is in_step else []
            assert await records(on) == unknown
            await on.submit("again", "m2")
            await on.run(app_of(report), "w:00000002")
            assert await on.ending("m2") is Ending.COMPLETED


async def test_a_lost_session_writes_nothing_more() -> None:
    works = Works()

    async def handler(turn: Turn[Any]) -> None:
        await turn.step("stuck", works.hangs("stuck"))

    async with bench() as on:
        await on.submit("go")
        run, held = await on.begin(app_of(handler))
        await until(lambda: works.ran["stuck"] > 0, "the step runs")
        await on.stores.worker.evict(held.lease.incarnation)
        await on.stores.worker.reap(on.partition, [on.session])
        before = await on.stores.dump()
        held.lose(LeaseGone(session_id="s", fence=1))
        assert (await run).how == "lost"
        assert await on.stores.dump() == before


async def handed_off(run: asyncio.Task[RunEnd]) -> None:
    assert (await run).how == "handed_off"


async def test_a_drain_hands_off_between_the_calls_at_once() -> None:
    works, there = Works(), asyncio.Event()

    async def handler(turn: Turn[Any]) -> str:
        works.ran["handler"] += 1
        await turn.step("one", works.gives("one"))
        there.set()
        if works.ran["handler"] == 1:
            await asyncio.Event().wait()
        return "done"

    async with bench() as on:
        app = app_of(handler)
        await on.submit("go")
        run, held = await on.begin(app)
        await until(there.is_set, "the first step is over")
        held.drain()
        await handed_off(run)
        await on.run(app, "w:00000002")
        (record,) = await on.turns()
        assert (record.text, record.takeovers, works.ran["one"]) == ("done", 0, 1)


async def test_a_drain_lets_the_running_step_end_and_keeps_its_result() -> None:
    works, go = Works(), asyncio.Event()

    async def handler(turn: Turn[Any]) -> str:
        async def one() -> str:
            works.ran["one"] += 1
            await go.wait()
            return "first"

        found = await turn.step("one", one)
        return f"{found}{await turn.step('two', works.gives('two', ' second'))}"

    async with bench() as on:
        app = app_of(handler)
        await on.submit("go")
        run, held = await on.begin(app)
        await until(lambda: works.ran["one"] > 0, "the step runs")
        held.drain()
        go.set()
        await handed_off(run)
        assert works.ran == {"one": 1}
        await on.run(app, "w:00000002")
        assert (await on.turns())[0].text == "first second"
        assert works.ran == {"one": 1, "two": 1}


@pytest.mark.parametrize(
    ("effect", "ending"), [("once", Ending.FAILED), ("pure", Ending.COMPLETED)]
)
async def test_an_urgent_drain_cuts_the_running_step_off(effect: Any, ending: str) -> None:
    works = Works()

    async def handler(turn: Turn[Any]) -> None:
        stuck = works.hangs("stuck") if not works.ran["stuck"] else works.gives("stuck")
        await turn.step("stuck", stuck, effect=effect)

    async with bench() as on:
        app = app_of(handler)
        await on.submit("go")
        run, held = await on.begin(app)
        await until(lambda: works.ran["stuck"] > 0, "the step runs")
        held.drain_now()
        await handed_off(run)
        await on.run(app, "w:00000002")
        assert await on.ending() == ending
        assert works.ran["stuck"] == (1 if effect == "once" else 2)


async def test_a_handler_that_is_stuck_in_its_own_code_fails_its_turn() -> None:
    async def handler(turn: Turn[Any]) -> None:
        await asyncio.Event().wait()

    async with bench(step_timeout="20ms") as on:
        await on.submit("go")
        await on.run(app_of(handler))
        assert await failure(on) == (
            "handler_timeout",
            "the handler neither returned nor made a durable call within 0.02 s",
        )


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (ValueError("boom"), "handler", "ValueError: boom"),
        (KeyError("x"), "handler", "KeyError: 'x'"),
        (SystemExit(3), "handler", "SystemExit: 3"),
        (asyncio.CancelledError(), "handler", "CancelledError: "),
        (
            ModelError(kind="provider_auth", message="no key", retryable=False),
            "provider_auth",
            "no key",
        ),
    ],
)
async def test_what_a_handler_raises_fails_its_turn(
    error: BaseException, kind: str, message: str
) -> None:
    async def handler(turn: Turn[Any]) -> None:
        raise error

    async with bench() as on:
        await on.submit("go")
        await on.run(app_of(handler))
        assert await failure(on) == (kind, message)
        await on.submit("again", "m2")
        await on.run(app_of(report), "w:00000002")
        assert await on.ending("m2") is Ending.COMPLETED


async def test_a_step_may_take_as_long_as_it_says_before_its_worker_counts_as_hung() -> None:
    works = Works()

    async def handler(turn: Turn[Any]) -> None:
        await turn.step("long", works.hangs("long"), timeout="2h", retries=1)

    async with bench() as on:
        await on.submit("go")
        run, held = await on.begin(app_of(handler))
        await until(lambda: works.ran["long"] > 0, "the step runs")
        at = on.stores.worker.keys.of(on.session).named("stalls")
        stall = int(await on.stores.worker.executor.command("HGET", at, on.session))
        left_ms = stall - on.stores.worker.clock.now_ms()
        assert 4 * 3_600_000 < left_ms <= 4 * 3_600_000 + 60_000
        await on.die(run, held)


async def test_an_interrupt_comes_before_what_the_handler_raises() -> None:
    async with bench() as on:
        holds: list[Held] = []

        async def handler(turn: Turn[Any]) -> None:
            await on.submit(InterruptOp(), "i1")
            holds[0].note_control(1)
            raise ValueError("boom")

        await on.submit("go")
        run, held = await on.begin(app_of(handler))
        holds.append(held)
        await run
        assert await on.ending() is Ending.ABORTED


async def test_a_handler_that_calls_again_whatever_it_is_told_holds_up_nobody() -> None:
    """A retry around a durable call that catches too much: it is unwound like any other."""
    works, asked, over = Works(), 0, asyncio.Event()

    async def handler(turn: Turn[Any]) -> str:
        nonlocal asked
        for n in range(10 * MAX_CALLS):
            if over.is_set():
                break
            try:
                await turn.step(f"poll {n}", works.hangs("poll"), effect="pure")
            except BaseException:
                asked = n
        return "never"

    async with bench() as on:
        await on.submit("go")
        run, held = await on.begin(app_of(handler))
        await until(lambda: works.ran["poll"] > 0, "the step runs")
        held.drain_now()
        await handed_off(run)
        over.set()
        assert 0 < asked <= MAX_CALLS + 10
        assert works.ran["poll"] == 1
        assert await on.turns() == []


async def test_a_handler_whose_calls_are_refused_again_and_again_fails_its_turn() -> None:
    works = Works()

    async def handler(turn: Turn[Any]) -> Any:
        while True:
            with suppress(Exception):
                return await turn.step("same", works.raises("same", ValueError("no")))

    async with bench() as on:
        await on.submit("go")
        await on.run(app_of(handler))
        assert await failure(on) == (
            "handler",
            f"the handler went on with {MAX_CALLS} calls that were refused",
        )
        assert works.ran["same"] == 1

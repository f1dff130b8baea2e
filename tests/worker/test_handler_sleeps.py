"""A handler that sleeps: short in its slot, long without any worker."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from changeover_shared._errors import Invalid
from changeover_shared._events import (
    TurnParked,
    TurnResumed,
)
from changeover_shared._items import StepRecord
from changeover_shared._ops import InterruptOp
from changeover_shared._words import Ending, Status
from changeover_worker import (
    Turn,
    TurnStopped,
)
from tests.support.handling import Works, app_of, records
from tests.support.holding import bench


@pytest.mark.parametrize("span", ["10ms", "0s"])
async def test_a_short_sleep_is_slept_in_the_slot_and_recorded(span: str) -> None:
    async def handler(turn: Turn[Any]) -> str:
        await turn.sleep(span)
        return "awake"

    async with bench() as on:
        await on.submit("go")
        await on.run(app_of(handler))
        assert (await on.turns())[0].text == "awake"
        assert await records(on) == [StepRecord(name="sleep", kind="sleep")]
        assert "turn_parked" not in await on.types()


@pytest.mark.parametrize("span", ["36501d", "3650000d", timedelta.max])
async def test_a_sleep_beyond_what_anybody_can_show_or_store_is_refused(
    span: str | timedelta,
) -> None:
    async def handler(turn: Turn[Any]) -> str:
        try:
            await turn.sleep(span)
        except Invalid as refused:
            return str(refused)
        return "slept"

    async with bench() as on:
        await on.submit("go")
        end = await on.run(app_of(handler))
        assert (end.how, end.failed_turns) == ("released", 0)
        assert "is over 36500 days" in (await on.turns())[0].text


async def test_a_long_sleep_holds_no_worker_and_goes_on_elsewhere() -> None:
    works = Works()
    unwound: list[str] = []

    async def handler(turn: Turn[Any]) -> str:
        await turn.step("before", works.gives("before"))
        try:
            await turn.sleep("1h")
        except TurnStopped as stopped:
            unwound.append(type(stopped).__name__)
            raise
        await turn.step("after", works.gives("after"))
        return "rested"

    async with bench() as on:
        app = app_of(handler)
        await on.submit("go")
        assert (await on.run(app)).how == "released"
        head = await on.stores.worker.read_head(on.session)
        assert head is not None and head.status is Status.PARKED
        (parked,) = [e for e in await on.events() if isinstance(e, TurnParked)]
        now_ms = on.stores.worker.clock.now_ms()
        assert parked.reason == "sleep" and parked.until_ms is not None
        assert 0 < parked.until_ms - now_ms <= 3_600_000
        assert unwound == ["TurnStopped"]
        await on.pass_time(3_600_001)
        await on.run(app, "w:00000002")
        assert works.ran == {"before": 1, "after": 1}
        assert [e.reason for e in await on.events() if isinstance(e, TurnResumed)] == ["sleep"]
        (record,) = await on.turns()
        assert (record.text, record.takeovers) == ("rested", 0)
        work = await on.stores.worker.read_work(on.session)
        assert not work.waits


async def test_a_sleeping_turn_that_is_woken_early_sleeps_on() -> None:
    async def handler(turn: Turn[Any]) -> str:
        await turn.sleep("1h")
        return "rested"

    async with bench() as on:
        app = app_of(handler)
        await on.submit("go")
        await on.run(app)
        at = on.stores.worker.keys.of(on.session)
        executor = on.stores.worker.executor
        await executor.command("HDEL", at.session(on.session, "head"), "parked")
        await on.stores.worker.reap(on.partition, [on.session])
        assert (await on.run(app, "w:00000002")).how == "released"
        assert (await on.types()).count("turn_parked") == 1
        await on.pass_time(3_600_001)
        await on.run(app, "w:00000003")
        assert (await on.turns())[0].text == "rested"


async def test_a_sleeping_turn_can_be_interrupted() -> None:
    async def handler(turn: Turn[Any]) -> None:
        await turn.sleep("1h")

    async with bench() as on:
        app = app_of(handler)
        await on.submit("go")
        await on.run(app)
        await on.submit(InterruptOp(), "i1")
        await on.run(app, "w:00000002")
        assert await on.ending() is Ending.ABORTED
        assert await on.ending("i1") is Ending.COMPLETED


async def test_a_handler_that_holds_the_unwinding_up_changes_nothing() -> None:
    works, raised = Works(), []

    async def handler(turn: Turn[Any]) -> str:
        try:
            await turn.sleep("1h")
        except BaseException as stopped:
            raised.append(type(stopped))
        try:
            await turn.step("after", works.gives("after"))
        except BaseException as stopped:
            raised.append(type(stopped))
        return "I do not sleep"

    async with bench() as on:
        app = app_of(handler)
        await on.submit("go")
        assert (await on.run(app)).how == "released"
        assert raised == [TurnStopped, TurnStopped]
        assert not works.ran
        assert await on.ending() is None
        await on.pass_time(3_600_001)
        await on.run(app, "w:00000002")
        assert works.ran == {"after": 1}
        assert (await on.turns())[0].text == "I do not sleep"


async def test_a_turn_that_has_slept_waits_for_nothing_and_may_sleep_again() -> None:
    waits: list[int] = []

    async with bench() as on:

        async def look() -> None:
            waits.append(len((await on.stores.worker.read_work(on.session)).waits))

        async def handler(turn: Turn[Any]) -> str:
            for k in range(2):
                await turn.sleep("1h")
                await turn.step(f"look {k}", look)
            return "rested"

        app = app_of(handler)
        await on.submit("go")
        for k in range(3):
            await on.run(app, f"w:0000000{k}")
            await on.pass_time(3_600_001)
        assert (await on.turns())[0].text == "rested"
        assert waits == [0, 0]
        assert (await on.types()).count("turn_parked") == 2

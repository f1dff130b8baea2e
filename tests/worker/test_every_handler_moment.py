"""A handler with three steps, a question, a word and a sleep, disturbed at every moment that it
passes: its turn still ends exactly once, and no step that has ended runs again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from changeover_shared._events import ending_of
from changeover_shared._items import StepRecord
from changeover_shared._ops import InterruptOp
from changeover_shared._words import Ending, Status
from changeover_worker import App, OutcomeUnknown, Turn
from changeover_worker._session import signals
from changeover_worker._session.held import Held
from changeover_worker._session.runner import RunEnd
from changeover_worker._session.signals import Moment
from changeover_worker.testing import ScriptedModel, say
from tests.support.handling import records
from tests.support.holding import Bench, bench, texts

MOMENTS = 26
"""How many moments the undisturbed turn passes before it parks."""
AFTER_SLEEP = 10
"""And how many after it."""
HOUR_MS = 3_600_000

Disturb = Callable[[Bench, asyncio.Task[RunEnd], Held], Awaitable[bool]]
"""Does what it does to a session that stands still; whether the session may go on."""


@pytest.fixture(autouse=True)
def _no_listener_stays() -> Iterator[None]:
    yield
    signals.listen(None)


class Order:
    """The app, and how often its steps were begun and have ended."""

    def __init__(self) -> None:
        self.began: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.app = App(models={"m": ScriptedModel.by(lambda request: say("a fine plan"))})
        self.app.handler("bot")(self._handle)

    async def _handle(self, turn: Turn[Any]) -> str:
        stock = await turn.step("look", lambda: self._work("look"), effect="pure")
        plan = await turn.model(f"plan {turn.text}")
        await turn.say("I begin")
        try:
            paid = await turn.step("pay", lambda: self._work("pay"))
        except OutcomeUnknown:
            paid = "perhaps"
        await turn.sleep("1h")
        sent = await turn.step("send", lambda: self._work("send"), effect="idempotent")
        return f"{stock}, {plan.message.text}, {paid}, {sent}"

    async def _work(self, name: str) -> str:
        self.began[name] += 1
        await asyncio.sleep(0)
        self.ended[name] += 1
        return name


async def disturbed(on: Bench, order: Order, at: int, disturb: Disturb) -> None:
    """Stop the session at its `at`-th moment, disturb it there, and let it go on if it may."""
    there, go, passed = asyncio.Event(), asyncio.Event(), 0

    async def listener(moment: Moment, session_id: str, detail: str) -> None:
        nonlocal passed
        passed += 1
        if passed == at:
            there.set()
            await go.wait()

    signals.listen(listener)
    run, held = await on.begin(order.app)
    waits = asyncio.create_task(there.wait())
    await asyncio.wait({run, waits}, return_when=asyncio.FIRST_COMPLETED)
    assert there.is_set(), f"the turn passed only {passed} moments"
    waits.cancel()
    if await disturb(on, run, held):
        go.set()
        await run
    signals.listen(None)


async def finished(on: Bench, order: Order) -> None:
    """Have other workers run the session, and time pass, until its message has ended."""
    for k in range(2, 8):
        head = await on.stores.worker.read_head(on.session)
        assert head is not None
        if head.status is Status.PARKED:
            await on.pass_time(HOUR_MS + 1)
        if await on.ending() is None:
            await on.run(order.app, f"w:0000000{k}")


async def asleep(on: Bench, order: Order) -> None:
    """Run the turn until it sleeps, and let the hour pass."""
    await on.run(order.app, "w:00000000")
    await on.pass_time(HOUR_MS + 1)


async def assert_sound(on: Bench, order: Order) -> None:
    """What holds after any disturbance."""
    events = await on.events()
    seqs = [event.seq for event in events]
    assert seqs == sorted(set(seqs))
    fences = [event.fence for event in events]
    assert fences == sorted(fences)
    endings = [e for e in (ending_of(event, "m1") for event in events) if e is not None]
    assert endings == [await on.ending()]
    assert order.began["pay"] <= 1
    found = await records(on)
    assert len({(record.kind, record.name) for record in found}) == len(found)
    assert len(await on.turns()) == 1
    assert texts(events, "assistant_message").count("I begin") <= 1


async def assert_completed(on: Bench, order: Order) -> None:
    await assert_sound(on, order)
    assert await on.ending() is Ending.COMPLETED
    names = [record.name for record in await records(on)]
    assert names == ["look", "model", "say", "pay", "sleep", "send"]
    (pay,) = [record for record in await records(on) if record.name == "pay"]
    paid = "perhaps" if pay.unknown else "pay"
    assert (await on.turns())[0].text == f"look, a fine plan, {paid}, send"
    assert texts(await on.events(), "assistant_message").count("I begin") == 1


async def dies(on: Bench, run: asyncio.Task[RunEnd], held: Held) -> bool:
    await on.die(run, held)
    return False


async def drains(on: Bench, run: asyncio.Task[RunEnd], held: Held) -> bool:
    held.drain()
    return True


async def drains_now(on: Bench, run: asyncio.Task[RunEnd], held: Held) -> bool:
    held.drain_now()
    return True


async def is_evicted(on: Bench, run: asyncio.Task[RunEnd], held: Held) -> bool:
    await on.stores.worker.evict(held.lease.incarnation)
    await on.stores.worker.reap(on.partition, [on.session])
    return True


async def moments(on: Bench, order: Order) -> list[tuple[Moment, str]]:
    """The moments that one run passes."""
    seen: list[tuple[Moment, str]] = []

    async def listener(moment: Moment, session_id: str, detail: str) -> None:
        seen.append((moment, detail))

    signals.listen(listener)
    await on.run(order.app)
    signals.listen(None)
    return seen


async def test_the_moments_are_all_there() -> None:
    async with bench() as on:
        await on.submit("go")
        order = Order()
        before = await moments(on, order)
        await on.pass_time(HOUR_MS + 1)
        after = await moments(on, order)
        await assert_completed(on, order)
    assert (len(before), len(after)) == (MOMENTS, AFTER_SLEEP)
    assert before[-1] == (Moment.PARKED, "sleep")
    assert {moment for moment, _ in before} == set(Moment) - {
        Moment.ASSISTANT_COMMITTED,
        Moment.HANDED_OFF,
    }
    assert order.began == {"look": 1, "pay": 1, "send": 1}


@pytest.mark.parametrize("at", range(1, MOMENTS + 1))
@pytest.mark.parametrize("disturb", [dies, drains, drains_now, is_evicted])
async def test_a_turn_disturbed_at_any_moment_completes_once(disturb: Disturb, at: int) -> None:
    async with bench() as on:
        await on.submit("go")
        order = Order()
        await disturbed(on, order, at, disturb)
        await finished(on, order)
        await assert_completed(on, order)


@pytest.mark.parametrize("at", range(1, AFTER_SLEEP + 1))
@pytest.mark.parametrize("disturb", [dies, drains, drains_now, is_evicted])
async def test_a_turn_disturbed_after_its_sleep_completes_once(disturb: Disturb, at: int) -> None:
    async with bench() as on:
        await on.submit("go")
        order = Order()
        await asleep(on, order)
        before = order.ended.copy()
        await disturbed(on, order, at, disturb)
        await finished(on, order)
        await assert_completed(on, order)
        assert order.ended["look"] == before["look"] == 1


@pytest.mark.parametrize("at", range(1, MOMENTS - 1))
@pytest.mark.parametrize("again", [1, 2, 3])
async def test_a_successor_may_die_as_well(at: int, again: int) -> None:
    async with bench() as on:
        await on.submit("go")
        order = Order()
        await disturbed(on, order, at, dies)
        await disturbed(on, order, again, dies)
        await finished(on, order)
        await assert_completed(on, order)


@pytest.mark.parametrize("at", range(1, MOMENTS + 1))
async def test_a_turn_interrupted_at_any_moment_ends_as_whoever_was_first_says(at: int) -> None:
    accepted = True

    async def interrupts(on: Bench, run: asyncio.Task[RunEnd], held: Held) -> bool:
        nonlocal accepted
        head = await on.stores.worker.read_head(on.session)
        assert head is not None
        accepted = bool(head.turn)
        if accepted:
            await on.submit(InterruptOp(), "i1")
            held.alert(1)
        return True

    async with bench() as on:
        await on.submit("go")
        order = Order()
        await disturbed(on, order, at, interrupts)
        await finished(on, order)
        assert await on.ending() is (Ending.ABORTED if accepted else Ending.COMPLETED)
        if accepted:
            assert await on.ending("i1") is Ending.COMPLETED
        await assert_sound(on, order)


async def died_with_the_next_record(on: Bench, order: Order) -> None:
    """Run the session until the commit of one more record, and let its worker die there."""
    there, known = asyncio.Event(), len(await records(on))

    async def listener(moment: Moment, session_id: str, detail: str) -> None:
        if moment is Moment.AFTER_COMMIT and len(await records(on)) > known:
            there.set()
            await asyncio.Event().wait()

    signals.listen(listener)
    run, held = await on.begin(order.app)
    await there.wait()
    await on.die(run, held)


async def test_a_step_that_has_ended_runs_in_no_later_run() -> None:
    """Each worker dies with the commit of one more record."""
    async with bench() as on:
        await on.submit("go")
        order = Order()
        for _ in range(3):
            await died_with_the_next_record(on, order)
        signals.listen(None)
        assert [record.name for record in await records(on)] == ["look", "model", "say"]
        await finished(on, order)
        await assert_completed(on, order)
        assert order.ended == {"look": 1, "pay": 1, "send": 1}
        assert not any(isinstance(r, StepRecord) and r.unknown for r in await records(on))

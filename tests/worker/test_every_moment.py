"""One turn with two tools, disturbed at every moment that it passes: it still ends exactly once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator

import pytest

from changeover_shared._events import StepCompleted, ToolCallBegin, ToolCallEnd, ending_of
from changeover_shared._items import AssistantMessage, ToolResult
from changeover_shared._ops import InterruptOp
from changeover_shared._words import Ending
from changeover_worker._agent import Agent
from changeover_worker._app import App
from changeover_worker._models.model import ModelRequest
from changeover_worker._models.scripted import ScriptedAnswer
from changeover_worker._session import signals
from changeover_worker._session.held import Held
from changeover_worker._session.runner import RunEnd
from changeover_worker._session.signals import Moment
from changeover_worker._tools.tool import tool
from changeover_worker.testing import ScriptedModel, call, calls, say
from tests.support.holding import Bench, bench

MOMENTS = 26
"""How many moments the undisturbed turn passes."""

Disturb = Callable[[Bench, asyncio.Task[RunEnd], Held], Awaitable[bool]]
"""Does what it does to a session that stands still; whether the session may go on."""


@pytest.fixture(autouse=True)
def _no_listener_stays() -> Iterator[None]:
    yield
    signals.listen(None)


class Turn:
    """The app, and how often its tools ran."""

    def __init__(self) -> None:
        self.ran: Counter[str] = Counter()
        self.paid = asyncio.Event()
        """Set when the first result is durable: the second lands after it."""

        @tool
        async def pay() -> str:
            """Pay."""
            self.ran["pay"] += 1
            return "paid"

        @tool(effect="pure")
        async def look() -> str:
            """Look."""
            self.ran["look"] += 1
            if self.ran["look"] == 1:
                await self.paid.wait()
            return "seen"

        model = ScriptedModel.by(self._answer, chunk=4)
        self.app = App(agents=[Agent("bot", model="m", tools=[pay, look])], models={"m": model})

    def _answer(self, request: ModelRequest) -> ScriptedAnswer:
        if isinstance(request.items[-1], ToolResult):
            return say("all done")
        return calls(call("pay", call_id="c1"), call("look", call_id="c2"), text="let me see")


async def disturbed(on: Bench, turn: Turn, at: int, disturb: Disturb) -> None:
    """Stop the session at its `at`-th moment, disturb it there, and let it go on if it may."""
    there, go, passed = asyncio.Event(), asyncio.Event(), 0

    async def listener(moment: Moment, session_id: str, detail: str) -> None:
        nonlocal passed
        passed += 1
        if moment is Moment.AFTER_COMMIT and detail == "result":
            turn.paid.set()
        if passed == at:
            there.set()
            await go.wait()

    signals.listen(listener)
    run, held = await on.begin(turn.app)
    waits = asyncio.create_task(there.wait())
    await asyncio.wait({run, waits}, return_when=asyncio.FIRST_COMPLETED)
    assert there.is_set(), f"the turn passed only {passed} moments"
    waits.cancel()
    if await disturb(on, run, held):
        go.set()
        await run
    signals.listen(None)
    turn.paid.set()


async def finished(on: Bench, turn: Turn) -> None:
    """Have other workers run the session until its message has ended."""
    for k in range(2, 5):
        if await on.ending() is None:
            await on.run(turn.app, f"w:0000000{k}")


async def test_the_moments_are_all_there() -> None:
    seen: list[Moment] = []

    async with bench() as on:
        await on.submit("go")
        turn = Turn()

        async def listener(moment: Moment, session_id: str, detail: str) -> None:
            seen.append(moment)
            if moment is Moment.AFTER_COMMIT and detail == "result":
                turn.paid.set()

        signals.listen(listener)
        await on.run(turn.app)
    assert len(seen) == MOMENTS
    assert set(seen) == set(Moment) - {Moment.HANDED_OFF, Moment.PARKED}


async def assert_sound(on: Bench) -> None:
    """What holds after any disturbance."""
    events = await on.events()
    seqs = [event.seq for event in events]
    removed = [
        seq
        for event in events
        if isinstance(event, StepCompleted)
        for first, last in event.removed
        for seq in range(first, last + 1)
    ]
    assert seqs == sorted(set(seqs))
    assert {*seqs, *removed} == set(range(1, max(seqs) + 1))
    fences = [event.fence for event in events]
    assert fences == sorted(fences)
    endings = [e for e in (ending_of(event, "m1") for event in events) if e is not None]
    assert endings == [await on.ending()]
    ends = Counter(event.call_id for event in events if isinstance(event, ToolCallEnd))
    begun = Counter(event.call_id for event in events if isinstance(event, ToolCallBegin))
    assert ends == begun
    assert set(begun.values()) <= {1}
    items = [entry.item for entry in await on.transcript()]
    for k, item in enumerate(items):
        if isinstance(item, AssistantMessage):
            answers = items[k + 1 : k + 1 + len(item.tool_calls)]
            assert [getattr(a, "call_id", None) for a in answers] == [
                c.call_id for c in item.tool_calls
            ]
    assert len(await on.turns()) == 1


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


@pytest.mark.parametrize("at", range(1, MOMENTS + 1))
@pytest.mark.parametrize("disturb", [dies, drains, drains_now, is_evicted])
async def test_a_turn_disturbed_at_any_moment_completes_once(disturb: Disturb, at: int) -> None:
    """Case S41: the turn's end is told once, its input is settled once."""
    async with bench() as on:
        await on.submit("go")
        turn = Turn()
        await disturbed(on, turn, at, disturb)
        await finished(on, turn)
        assert await on.ending() is Ending.COMPLETED
        await assert_sound(on)
        assert turn.ran["pay"] <= 1
        last = [e.item for e in await on.transcript()][-1]
        assert isinstance(last, AssistantMessage) and last.text == "all done"


@pytest.mark.parametrize("at", range(1, MOMENTS - 4))
@pytest.mark.parametrize("again", [1, 2, 3])
async def test_a_successor_may_die_as_well(at: int, again: int) -> None:
    """Case S41: also when its successor dies."""
    async with bench() as on:
        await on.submit("go")
        turn = Turn()
        await disturbed(on, turn, at, dies)
        await disturbed(on, turn, again, dies)
        await finished(on, turn)
        assert await on.ending() is Ending.COMPLETED
        await assert_sound(on)
        assert turn.ran["pay"] <= 1


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
        turn = Turn()
        await disturbed(on, turn, at, interrupts)
        await finished(on, turn)
        assert await on.ending() is (Ending.ABORTED if accepted else Ending.COMPLETED)
        if accepted:
            assert await on.ending("i1") is Ending.COMPLETED
        await assert_sound(on)
        await on.submit("still there?", "m2")
        await on.run(turn.app, "w:00000009")
        assert await on.ending("m2") is Ending.COMPLETED

"""`App(on_event=...)`: an application is told what is durable, and holds nothing up for good."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from changeover_shared._errors import Invalid, LeaseExpired
from changeover_shared._events import Event
from changeover_shared._items import AssistantMessage
from changeover_worker._agent import Agent
from changeover_worker._app import App, OnEvent
from changeover_worker._models.model import Emit, ModelRequest, ModelResponse, TextDelta
from changeover_worker._session import reader
from changeover_worker._session.reader import READER_EVENTS
from changeover_worker.testing import ScriptedModel, say
from tests.support.holding import Bench, bench, until, until_so


class Told:
    """Notes what it is told; waits while it is told to."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.sessions: set[str] = set()
        self.asked = 0
        self.cancelled = False
        self.go = asyncio.Event()
        self.go.set()

    async def __call__(self, session_id: str, event: Event) -> None:
        self.asked += 1
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        self.sessions.add(session_id)
        self.events.append(event)


class Talker:
    """A model that says many things, each an event of its own, and stays until it is let go."""

    name = "talker"

    def __init__(self, count: int) -> None:
        self.count = count
        self.go = asyncio.Event()
        self.cancelled = False

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        try:
            for n in range(self.count):
                await emit(TextDelta(str(n % 10), "commentary" if n % 2 else "final_answer"))
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return ModelResponse(AssistantMessage(text="done"))


def app_of(model: Any, on_event: OnEvent) -> App:
    return App(agents=[Agent("bot", model="main")], models={"main": model}, on_event=on_event)


async def written(on: Bench) -> list[Event]:
    """What the worker has written."""
    return [event for event in await on.events() if event.type != "message"]


def without_time(events: list[Event]) -> list[Event]:
    return [event.model_copy(update={"at_ms": 0}) for event in events]


async def is_held_back(on: Bench) -> bool:
    return len(await written(on)) > READER_EVENTS + 1


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(100):
        await asyncio.sleep(0)


def warnings(on: Bench) -> list[Any]:
    return [
        call
        for call in on.log.calls
        if call.args == ("warning",) and call.kwargs.get("code") == "on_event_failed"
    ]


async def test_an_app_is_told_every_event_that_its_worker_writes_as_the_journal_has_it() -> None:
    told = Told()
    async with bench() as on:
        await on.submit("one")
        await on.submit("two", "m2")
        await on.run(app_of(ScriptedModel(say("hi"), say("ho")), told))
        assert told.sessions == {"s"}
        assert without_time(told.events) == without_time(await written(on))
        assert [event.type for event in told.events].count("turn_completed") == 2
        times = [event.at_ms for event in told.events]
        assert times == sorted(times)
        assert times[0] > 0


async def test_a_slow_function_holds_its_session_back_and_loses_nothing() -> None:
    told = Told()
    told.go.clear()
    async with bench() as on:
        await on.submit("go")
        model = Talker(READER_EVENTS * 3)
        model.go.set()
        run, _ = await on.begin(app_of(model, told))
        await until(lambda: told.asked == 1, "it is told the first event")
        await until_so(partial(is_held_back, on), "no event has room any more")
        await settle()
        assert len(await written(on)) < READER_EVENTS * 3
        assert not run.done()
        told.go.set()
        assert (await run).how == "released"
        assert without_time(told.events) == without_time(await written(on))


async def test_a_function_that_raises_is_logged_once_and_the_session_goes_on() -> None:
    asked: list[int] = []

    async def broken(session_id: str, event: Event) -> None:
        asked.append(event.seq)
        raise SystemExit("no disk")

    async with bench() as on:
        await on.submit("go")
        end = await on.run(app_of(ScriptedModel(say("hi"), say("ho")), broken))
        assert (end.how, end.turns, end.failed_turns) == ("released", 1, 0)
        assert len(asked) == len(warnings(on)) == 1
        assert warnings(on)[0].kwargs["session"] == "s"
        await on.submit("again", "m2")
        await on.run(app_of(ScriptedModel(say("ho")), broken))
        assert len(asked) == len(warnings(on)) == 2


async def test_a_function_that_has_raised_holds_nothing_back() -> None:
    async def broken(session_id: str, event: Event) -> None:
        raise OSError("no disk")

    async with bench() as on:
        await on.submit("go")
        model = Talker(READER_EVENTS * 3)
        model.go.set()
        assert (await on.run(app_of(model, broken))).how == "released"
        assert len(await written(on)) > READER_EVENTS * 3
        assert len(warnings(on)) == 1


async def test_a_function_that_is_cancelled_from_within_is_left_alone() -> None:
    async def broken(session_id: str, event: Event) -> None:
        raise asyncio.CancelledError

    async with bench() as on:
        await on.submit("go")
        assert (await on.run(app_of(ScriptedModel(say("hi")), broken))).how == "released"
        assert len(warnings(on)) == 1


@pytest.mark.parametrize("why", ["lost", "wanted elsewhere", "cancelled"])
async def test_a_function_that_never_returns_does_not_keep_a_session_that_must_go(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "CLEAN_UP_S", 0.0)
    told = Told()
    told.go.clear()
    async with bench() as on:
        await on.submit("go")
        model = Talker(READER_EVENTS * 3)
        run, held = await on.begin(app_of(model, told))
        await until(lambda: told.asked == 1, "it is told the first event")
        await until_so(partial(is_held_back, on), "no event has room any more")
        match why:
            case "lost":
                held.lose(LeaseExpired(session_id="s", fence=held.lease.fence))
            case "wanted elsewhere":
                held.drain_now()
            case "cancelled":
                run.cancel()
        await asyncio.wait({run})
        assert told.cancelled
        assert model.cancelled
        ends = {"lost": "lost", "wanted elsewhere": "handed_off"}
        assert run.cancelled() if why == "cancelled" else run.result().how == ends[why]
        assert "turn_completed" not in await on.types()


async def test_a_session_that_was_released_ends_here_when_its_last_events_were_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reader, "CLEAN_UP_S", 0.0)
    told = Told()
    told.go.clear()
    async with bench() as on:
        await on.submit("go")
        run, held = await on.begin(app_of(ScriptedModel(say("hi")), told))
        await until(lambda: any("turn_ended" in call.args for call in on.log.calls), "it ended")
        held.lose(LeaseExpired(session_id="s", fence=held.lease.fence))
        await settle()
        assert not run.done()
        told.go.set()
        assert (await run).how == "released"
        assert without_time(told.events) == without_time(await written(on))


async def test_a_session_that_cannot_run_here_is_told_of_too() -> None:
    told = Told()
    async with bench() as on:
        await on.submit("go")
        await on.run(App(on_event=told))
        assert [event.type for event in told.events] == ["warning"]
        assert without_time(told.events) == without_time(await written(on))


async def ignore(session_id: str, event: Event) -> None:
    """Takes an event."""


class Method:
    async def take(self, session_id: str, event: Event) -> None:
        """Takes an event."""


@pytest.mark.parametrize("fits", [None, ignore, Told(), partial(ignore), Method().take])
def test_whatever_is_an_async_function_may_be_told(fits: Any) -> None:
    assert App(on_event=fits).on_event is fits


@pytest.mark.parametrize("unfit", [3, print, lambda session_id, event: None, Told])
def test_what_is_no_async_function_is_refused(unfit: Any) -> None:
    with pytest.raises(Invalid, match=r"on_event: .* is no async function; nothing was started"):
        App(on_event=unfit)

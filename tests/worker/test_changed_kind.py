"""A deploy makes an agent into a handler of the same name, or back, while a turn is open."""

from __future__ import annotations

import asyncio
from typing import Any

from changeover_shared._events import ToolCallBegin, ToolCallEnd, TurnParked, TurnResumed
from changeover_shared._items import AssistantMessage, Item, StepRecord, ToolResult, UserMessage
from changeover_shared._words import Ending
from changeover_worker import Agent, App, Compaction, Turn, tool
from changeover_worker._models.model import Emit, ModelRequest, ModelResponse
from changeover_worker.testing import ScriptedModel, call, calls, fail, say
from tests.support.handling import Works, app_of, died_in, records
from tests.support.holding import Bench, bench, until, until_so

OTHER, THIRD = "w:00000002", "w:00000003"


class Waiting:
    """A model that never answers."""

    name = "waiting"

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        self.asked.set()
        await asyncio.Event().wait()
        raise AssertionError("it waits for ever")


def agent_of(model: Any, *tools: Any, compaction: Compaction | None = None) -> App:
    bot = Agent("bot", model="m1", tools=tools, compaction=compaction)
    return App(agents=[bot], models={"m1": model})


async def warnings(on: Bench) -> list[str]:
    return [getattr(event, "code", "") for event in await on.events() if event.type == "warning"]


async def test_what_an_agents_tools_have_done_is_kept_when_a_handler_goes_on() -> None:
    works = Works()

    @tool
    async def pay(order: str) -> str:
        """Pay."""
        return f"paid {order}"

    @tool
    async def send() -> None:
        """Send."""
        await works.hangs("send")()

    async def handler(turn: Turn[Any]) -> str:
        return f"{turn.text}, {len(turn.messages)} message"

    async with bench() as on:

        async def pay_has_landed() -> bool:
            return "tool_call_end" in await on.types()

        await on.submit("go")
        asked = calls(call("pay", order="7", call_id="c1"), call("send", call_id="c2"))
        run, held = await on.begin(agent_of(ScriptedModel(asked), pay, send))
        await until(lambda: works.ran["send"] > 0, "the second call runs")
        await until_so(pay_has_landed, "the first call has its result")
        await on.die(run, held)
        await on.run(app_of(handler, ScriptedModel()), OTHER)
        assert (await on.turns())[0].text == "go, 1 message"
        items = [entry.item for entry in await on.transcript()]
        paid, sent = [item for item in items if isinstance(item, ToolResult)]
        assert (paid.output, paid.unknown) == ("paid 7", False)
        assert (sent.is_error, sent.unknown) == (True, True)
        events = await on.events()
        ended = [event.call_id for event in events if isinstance(event, ToolCallEnd)]
        assert ended == [event.call_id for event in events if isinstance(event, ToolCallBegin)]
        assert await warnings(on) == ["kind_changed"]


async def test_a_handler_does_not_wait_for_what_an_agent_has_waited_for() -> None:
    """An open wait that is due would keep every later park from giving the session up."""

    async def handler(turn: Turn[Any]) -> str:
        await turn.sleep("1h")
        return "rested"

    async with bench() as on:
        await on.submit("go")
        limited = fail("provider_rate_limit", "429", retryable=True, retry_after="30s")
        await on.run(agent_of(ScriptedModel(limited)))
        await on.pass_time(31_000)
        app = app_of(handler, ScriptedModel())
        run, held = await on.begin(app, OTHER)
        try:
            async with asyncio.timeout(10):
                assert (await asyncio.shield(run)).how == "released"
        finally:
            await on.die(run, held)
        moves = [e for e in await on.events() if isinstance(e, TurnParked | TurnResumed)]
        assert [(e.type, e.reason) for e in moves] == [
            ("turn_parked", "retry"),
            ("turn_resumed", "retry"),
            ("turn_parked", "sleep"),
        ]
        await on.pass_time(3_600_000)
        await on.run(app, THIRD)
        assert (await on.turns())[0].text == "rested"


async def test_a_handler_reads_what_it_answers_behind_a_summary_of_its_turn() -> None:
    @tool(effect="pure")
    async def much() -> str:
        """Much."""
        return "y" * 8000

    class Model:
        name = "model"

        def __init__(self) -> None:
            self.steps = 0

        async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
            if not request.step_id:
                return ModelResponse(AssistantMessage(text="a summary"))
            self.steps += 1
            if self.steps > 2:
                await asyncio.Event().wait()
            return await ScriptedModel.always(call("much")).respond(request, emit)

    async def handler(turn: Turn[Any]) -> str:
        return f"{turn.text}, {len(turn.messages)} messages"

    async with bench() as on:
        await on.submit("go")
        model = Model()
        small = Compaction(at_tokens=2_500, keep_tokens=100)
        run, held = await on.begin(agent_of(model, much, compaction=small))
        await until(lambda: model.steps > 2, "the third step runs")
        assert "context_compacted" in await on.types()
        await on.die(run, held)
        await on.run(app_of(handler, ScriptedModel()), OTHER)
        assert (await on.turns())[0].text == "go, 2 messages"


async def test_a_step_of_a_handler_that_may_have_run_is_recorded_when_an_agent_goes_on() -> None:
    works = Works()

    async def handler(turn: Turn[Any]) -> str:
        await turn.step("charge", works.hangs("charge"))
        return "charged"

    async with bench() as on:
        await on.submit("go")
        await died_in(on, app_of(handler, ScriptedModel()), works, "charge")
        await on.run(agent_of(ScriptedModel(say("hello"))), OTHER)
        assert await on.ending() is Ending.COMPLETED
        assert await records(on) == [StepRecord(name="charge", unknown=True)]
        assert await warnings(on) == ["kind_changed"]


async def test_a_turn_that_comes_back_to_its_handler_runs_no_step_twice() -> None:
    works = Works()

    async def handler(turn: Turn[Any]) -> str:
        await turn.step("look", works.gives("look"), effect="pure")
        await turn.sleep("1h")
        return "seen"

    async with bench() as on:
        await on.submit("go")
        app = app_of(handler, ScriptedModel())
        await on.run(app)
        await on.pass_time(3_600_000)
        model = Waiting()
        run, held = await on.begin(agent_of(model), OTHER)
        await model.asked.wait()
        await on.die(run, held)
        assert (await on.run(app, THIRD)).how == "released"
        await on.pass_time(3_600_000)
        await on.run(app, THIRD)
        assert (await on.turns())[0].text == "seen"
        assert works.ran["look"] == 1


async def test_a_turn_between_two_moves_changes_hands_without_a_word() -> None:
    seen: list[Item] = []
    there = asyncio.Event()

    async def waits(turn: Turn[Any]) -> None:
        there.set()
        await asyncio.Event().wait()

    async def handler(turn: Turn[Any]) -> str:
        seen.extend(turn.messages)
        return "done"

    async with bench() as on:
        await on.submit("go")
        run, held = await on.begin(app_of(waits, ScriptedModel()))
        await there.wait()
        await on.die(run, held)
        await on.run(agent_of(ScriptedModel(say("hello"))), OTHER)
        await on.submit("again", "m2")
        await on.run(app_of(handler, ScriptedModel()), THIRD)
        assert [item.text for item in seen if isinstance(item, UserMessage)] == ["go", "again"]
        assert await warnings(on) == []

"""A handler's steps: run once, kept as JSON, answered from the store in every later run."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

import pytest
from pydantic import BaseModel

from changeover_shared._errors import Invalid, ToolError
from changeover_shared._events import (
    Warned,
)
from changeover_shared._items import StepRecord
from changeover_worker import (
    OutcomeUnknown,
    StepFailed,
    Turn,
    TurnStopped,
)
from changeover_worker._session import handler_run
from tests.support.handling import Works, app_of, died_in, failure, records
from tests.support.holding import bench, until


class Report(BaseModel):
    title: str
    pages: int


async def test_a_step_gives_the_same_value_in_its_first_run_as_in_every_other() -> None:
    works, seen = Works(), []

    async def handler(turn: Turn[Any]) -> None:
        seen.append(await turn.step("one", works.gives("one", Report(title="t", pages=2))))
        seen.append(await turn.step("two", works.gives("two", (1, "x"))))
        await turn.step("stuck", works.hangs("stuck"), effect="pure")

    async with bench() as on:
        app = app_of(handler)
        await on.submit("go")
        await died_in(on, app, works, "stuck")
        run, held = await on.begin(app, "w:00000002")
        await until(lambda: works.ran["stuck"] > 1, "the step runs again")
        await on.die(run, held)
    assert seen == [{"title": "t", "pages": 2}, [1, "x"]] * 2
    assert works.ran == {"one": 1, "two": 1, "stuck": 2}


async def test_a_once_step_that_may_have_run_is_unknown_in_every_run_after_it() -> None:
    works, seen = Works(), []

    async def handler(turn: Turn[Any]) -> str:
        try:
            await turn.step("charge", works.hangs("charge"))
        except OutcomeUnknown as unknown:
            seen.append(str(unknown))
        await turn.step("stuck", works.hangs("stuck"), effect="idempotent")
        return ""

    async with bench() as on:
        app = app_of(handler)
        await on.submit("go")
        await died_in(on, app, works, "charge")
        run, held = await on.begin(app, "w:00000002")
        await until(lambda: works.ran["stuck"] > 0, "the next step runs")
        await on.die(run, held)
        run, held = await on.begin(app, "w:00000003")
        await until(lambda: works.ran["stuck"] > 1, "it runs again")
        await on.die(run, held)
        assert works.ran == {"charge": 1, "stuck": 2}
        said = (
            "step 'charge' may or may not have run, its worker ended meanwhile; it is not run "
            "again in this turn; look what became of it, then decide"
        )
        assert seen == [said, said]
        assert await records(on) == [StepRecord(name="charge", unknown=True)]
        (warned,) = [e for e in await on.events() if isinstance(e, Warned)]
        assert warned.code == "step_unknown" and "'charge'" in warned.text
        logged = [c.kwargs for c in on.log.calls if c.args == ("step_unknown",)]
        assert logged == [{"session": "s", "turn": "t_1", "step": "charge"}]


async def test_an_unknown_step_that_nobody_catches_fails_the_turn_in_its_name() -> None:
    works = Works()

    async def handler(turn: Turn[Any]) -> None:
        await turn.step("charge", works.hangs("charge"))

    async with bench() as on:
        app = app_of(handler)
        await on.submit("go")
        await died_in(on, app, works, "charge")
        await on.run(app, "w:00000002")
        assert (await failure(on))[0] == "outcome_unknown"
        assert (await on.turns())[0].takeovers == 1


async def test_a_step_is_tried_as_often_as_it_may_be() -> None:
    works = Works()

    async def handler(turn: Turn[Any]) -> str:
        flaky = works.raises("flaky", ValueError("not yet"), times=2)
        return await turn.step("flaky", flaky, retries=2)

    async with bench() as on:
        await on.submit("go")
        await on.run(app_of(handler))
        assert ((await on.turns())[0].text, works.ran["flaky"]) == ("at last", 3)


async def test_a_failed_step_is_a_result_that_is_replayed() -> None:
    works, seen = Works(), []

    async def handler(turn: Turn[Any]) -> None:
        try:
            await turn.step("bad", works.raises("bad", ValueError("no such order")), retries=1)
        except StepFailed as failed:
            seen.append((failed.step, failed.text))
        await turn.step("stuck", works.hangs("stuck"), effect="pure")

    async with bench() as on:
        app = app_of(handler)
        await on.submit("go")
        await died_in(on, app, works, "stuck")
        run, held = await on.begin(app, "w:00000002")
        await until(lambda: works.ran["stuck"] > 1, "the step runs again")
        await on.die(run, held)
    assert seen == [("bad", "ValueError: no such order")] * 2
    assert works.ran["bad"] == 2


async def test_a_step_that_takes_too_long_fails() -> None:
    works = Works()

    async def handler(turn: Turn[Any]) -> None:
        await turn.step("slow", works.hangs("slow"), timeout="10ms", retries=1)

    async with bench() as on:
        await on.submit("go")
        await on.run(app_of(handler))
        kind, message = await failure(on)
        assert kind == "step_failed"
        assert message == (
            "step 'slow' failed: it did not end within 0.01 s; it may have run; "
            "it is not run again in this turn; catch it, or let the turn fail"
        )
        assert works.ran["slow"] == 2


def at_once() -> Any:
    return 3


async def too_large() -> str:
    return "x" * 1024**2


async def no_json() -> object:
    return object()


async def leaves() -> None:
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (at_once, "TypeError: the function returned a int at once; make it async def"),
        (too_large, "the step ran, its result is 1048578 bytes of JSON, the limit is 1048576"),
        (no_json, "the step ran and returned a object that JSON cannot hold"),
        (leaves, "SystemExit: the step tried to end the worker, which goes on"),
    ],
)
async def test_a_step_without_a_result_that_can_be_kept_fails(function: Any, said: str) -> None:
    async def handler(turn: Turn[Any]) -> str:
        try:
            await turn.step("odd", function)
        except StepFailed as failed:
            return failed.text
        return ""

    async with bench() as on:
        await on.submit("go")
        await on.run(app_of(handler))
        assert (await on.turns())[0].text.startswith(said)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("", at_once), "a name has 1 to 256 characters"),
        (("x" * 257, at_once), "a name has 1 to 256 characters"),
        (("s", 3), "3 is no function"),
    ],
)
async def test_a_step_that_could_not_run_is_refused(given: tuple[Any, ...], said: str) -> None:
    async def handler(turn: Turn[Any]) -> str:
        with pytest.raises(Invalid, match=said):
            await turn.step(*given)
        with pytest.raises(Invalid, match="effect 'twice' is none of pure, idempotent, once"):
            await turn.step("s", too_large, effect="twice")  # type: ignore[arg-type]
        with pytest.raises(Invalid, match="retries are 0 to 1000"):
            await turn.step("s", too_large, retries=-1)
        with pytest.raises(Invalid, match="a timeout of 0 would let no step end"):
            await turn.step("s", too_large, timeout="0s")
        with pytest.raises(Invalid, match="the text holds nothing to say"):
            await turn.say(" ")
        with pytest.raises(Invalid, match="messages are text or a sequence of items"):
            await turn.model([])
        with pytest.raises(Invalid, match="there is no model 'x' in this app; there are: none"):
            await turn.model("hi", model="x")
        with pytest.raises(Invalid, match="'soon' is no duration"):
            await turn.sleep("soon")
        return "whole"

    async with bench() as on:
        await on.submit("go")
        await on.run(app_of(handler))
        assert (await on.turns())[0].text == "whole"
        assert not await records(on)


async def test_a_step_name_is_unique_in_its_turn() -> None:
    works = Works()

    async def handler(turn: Turn[Any]) -> None:
        for _ in range(2):
            await turn.step("same", works.gives("same"))

    async with bench() as on:
        await on.submit("go")
        await on.run(app_of(handler))
        kind, message = await failure(on)
        assert kind == "invalid"
        assert message == (
            "step 'same': the turn has a step of that name; names are unique in a turn; "
            "nothing was run"
        )
        assert works.ran["same"] == 1


async def test_durable_calls_are_made_one_at_a_time() -> None:
    works = Works()

    async def handler(turn: Turn[Any]) -> None:
        await asyncio.gather(
            turn.step("one", works.gives("one")), turn.step("two", works.gives("two"))
        )

    async with bench() as on:
        await on.submit("go")
        await on.run(app_of(handler))
        kind, message = await failure(on)
        assert kind == "invalid"
        assert message == (
            "step 'two': step 'one' runs; a handler makes one durable call at a time; "
            "nothing was run"
        )
        assert works.ran["two"] == 0


async def test_a_handler_that_gives_a_step_up_fails_its_turn() -> None:
    works = Works()

    async def handler(turn: Turn[Any]) -> str:
        try:
            async with asyncio.timeout(0.01):
                await turn.step("slow", works.hangs("slow"))
        except TimeoutError:
            await turn.step("next", works.gives("next"))
        return "all is well"

    async with bench() as on:
        await on.submit("go")
        await on.run(app_of(handler))
        assert await failure(on) == (
            "handler", "the handler gave step 'slow' up while it ran; give it a timeout",
        )  # fmt: skip
        assert works.ran == {"slow": 1}


async def test_a_step_sees_the_context_variables_of_its_handler() -> None:
    name: ContextVar[str] = ContextVar("name")

    async def handler(turn: Turn[Any]) -> str:
        name.set("ada")

        async def work() -> str:
            return name.get()

        return await turn.step("work", work)

    async with bench() as on:
        await on.submit("go")
        await on.run(app_of(handler))
        assert (await on.turns())[0].text == "ada"


async def test_a_turn_makes_a_bounded_number_of_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler_run, "MAX_CALLS", 3)
    works = Works()

    async def handler(turn: Turn[Any]) -> None:
        for n in range(9):
            await turn.step(f"s{n}", works.gives("s"))

    async with bench() as on:
        await on.submit("go")
        await on.run(app_of(handler))
        assert await failure(on) == ("step_limit", "the turn made 3 durable calls, the limit")
        assert works.ran["s"] == 3


async def test_a_call_after_the_handler_has_ended_is_refused() -> None:
    kept: list[Turn[Any]] = []
    works = Works()

    async def handler(turn: Turn[Any]) -> str:
        kept.append(turn)
        return "done"

    async with bench() as on:
        await on.submit("go")
        await on.run(app_of(handler))
        before = await on.stores.dump()
        with pytest.raises(TurnStopped):
            await kept[0].step("late", works.gives("late"))
        assert await on.stores.dump() == before
        assert not works.ran


async def test_a_tool_error_that_cannot_be_shown_fails_its_step() -> None:
    class Unspeakable(ToolError):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    works = Works()

    async def handler(turn: Turn[Any]) -> None:
        await turn.step("talk", works.raises("talk", Unspeakable("x")))

    async with bench() as on:
        await on.submit("go")
        assert (await on.run(app_of(handler))).how == "released"
        assert (await failure(on))[0] == "step_failed"


async def test_a_call_beside_another_is_refused_in_every_run_alike() -> None:
    works, there = Works(), asyncio.Event()

    async def handler(turn: Turn[Any]) -> list[str]:
        works.ran["handler"] += 1
        both = [turn.step(name, works.gives(name, name)) for name in ("one", "two")]
        found = await asyncio.gather(*both, return_exceptions=True)
        await turn.step("three", works.gives("three"))
        if works.ran["handler"] == 1:
            there.set()
            await asyncio.Event().wait()
        return [each if isinstance(each, str) else type(each).__name__ for each in found]

    async with bench() as on:
        await on.submit("go")
        run, held = await on.begin(app_of(handler))
        await there.wait()
        await on.die(run, held)
        await on.run(app_of(handler), "w:00000002")
        assert (await on.turns())[0].output == ["one", "Invalid"]
        assert works.ran == {"handler": 2, "one": 1, "three": 1}

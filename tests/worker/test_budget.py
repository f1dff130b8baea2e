"""What a turn may use: steps, tokens and cost, of the agent and of the submission."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from changeover_shared._checkpoint import Execution
from changeover_shared._errors import Invalid
from changeover_shared._events import TurnFailed
from changeover_shared._items import Usage
from changeover_shared._ops import MessageOp
from changeover_worker import Agent, App, Budget, ModelRequest, Price, Turn, tool
from changeover_worker._turn.budget import Limits, used_up
from changeover_worker.testing import ScriptedAnswer, ScriptedModel, call
from tests.support.holding import Bench, bench

USAGE = Usage(input_tokens=900, output_tokens=100, cached_input_tokens=400)


def turn(steps: int = 0, usage: Usage | None = None, budget: Budget | None = None) -> Execution:
    return Execution(
        turn_id="t_1", submission_ids=("m1",), started_at_ms=1, next_step=steps,
        usage=usage or Usage(), budget=budget,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("execution", "budget", "kind"),
    [
        (turn(2), Budget(steps=3), None),
        (turn(3), Budget(steps=3), "budget"),
        (turn(256), Budget(), "step_limit"),
        (turn(1, USAGE), Budget(tokens=1001), None),
        (turn(1, USAGE), Budget(tokens=1000), "budget"),
        (turn(1, USAGE), Budget(cost=0.0015), "budget"),
        (turn(1, USAGE), Budget(cost=0.0016), None),
        (turn(3, budget=Budget(steps=3)), Budget(steps=9), "budget"),
        (turn(3, budget=Budget(steps=9)), Budget(steps=3), "budget"),
    ],
)
def test_a_turn_goes_on_until_it_has_used_up_the_tightest_limit(
    execution: Execution, budget: Budget, kind: str | None
) -> None:
    """1000 tokens: 500 fresh at 2, 400 cached at 0.5 and 100 of output at 3 a million."""
    price = Price(input=2.0, output=3.0, cached_input=0.5)
    failure = used_up(execution, Limits(256, budget, price))
    assert (failure and failure.kind) == kind


def test_a_model_without_a_price_costs_nothing_that_could_be_counted() -> None:
    limits = Limits(256, Budget(cost=0.000001))
    assert used_up(turn(1, USAGE), limits) is None
    over = used_up(turn(1, USAGE), replace(limits, price=Price(1.0, 1.0)))
    assert over is not None
    assert over.message == "turn has used 0.001 of cost, its budget is 1e-06"


def test_what_is_cached_costs_as_other_input_unless_it_is_told() -> None:
    assert Price(input=1.0, output=0.0).of(USAGE) == pytest.approx(0.0009)


@pytest.mark.parametrize(
    "given", [{"steps": 0}, {"steps": 1.5}, {"tokens": True}, {"cost": -1}, {"cost": float("nan")}]
)
def test_a_budget_that_says_nothing_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        Budget(**given)


def test_prices_and_budgets_are_checked_when_an_app_is_made() -> None:
    with pytest.raises(Invalid, match="no model 'other'"):
        App(models={"main": ScriptedModel()}, prices={"other": Price(1.0, 1.0)})
    with pytest.raises(Invalid, match="is no Price"):
        App(models={"main": ScriptedModel()}, prices={"main": 1.0})  # type: ignore[dict-item]
    with pytest.raises(Invalid, match="Budget or None"):
        Agent("bot", model="main", budget=5)  # type: ignore[arg-type]
    with pytest.raises(Invalid, match="input is a number"):
        Price(input=-1.0, output=0.0)
    with pytest.raises(Invalid, match="output is a number"):
        Price(input=0, output=10**400)


@tool
async def again() -> str:
    """Again."""
    return "again"


def asking_for_ever(request: ModelRequest) -> ScriptedAnswer:
    return replace(call("again"), usage=Usage(input_tokens=60, output_tokens=40))


def app(budget: Budget | None = None, price: Price | None = None) -> App:
    return App(
        models={"main": ScriptedModel.by(asking_for_ever)},
        prices={} if price is None else {"main": price},
        agents=[Agent("bot", model="main", tools=[again], budget=budget)],
    )


async def why(on: Bench) -> tuple[str, str]:
    (failed,) = [event for event in await on.events() if isinstance(event, TurnFailed)]
    return failed.error.kind, failed.error.message


@pytest.mark.parametrize(
    ("budget", "said", "steps"),
    [
        (Budget(steps=2), "turn has used 2 model steps, its budget is 2", 2),
        (Budget(tokens=250), "turn has used 300 tokens, its budget is 250", 3),
        (Budget(cost=0.0002), "turn has used 0.0002 of cost, its budget is 0.0002", 2),
    ],
    ids=["steps", "tokens", "cost"],
)
async def test_a_turn_that_has_used_up_its_budget_fails_and_keeps_what_it_did(
    budget: Budget, said: str, steps: int
) -> None:
    async with bench() as on:
        await on.submit("go")
        await on.run(app(budget, Price(1.0, 1.0)))
        assert await why(on) == ("budget", said)
        (record,) = await on.turns()
        assert (record.steps, record.tool_calls, record.usage.total_tokens) == (
            steps, steps, 100 * steps,
        )  # fmt: skip


async def test_a_submission_may_allow_less_than_its_agent() -> None:
    async with bench() as on:
        await on.submit(MessageOp(text="go", budget=Budget(steps=1)), "m1")
        await on.run(app(Budget(steps=5)))
        assert await why(on) == ("budget", "turn has used 1 model steps, its budget is 1")


async def test_a_handler_is_held_to_its_budget_before_each_question() -> None:
    model = ScriptedModel.by(lambda request: replace(call("x"), usage=Usage(input_tokens=70)))
    app_of_one = App(models={"main": model})

    @app_of_one.handler("bot", budget=Budget(tokens=100))
    async def ask(turn: Turn[Any]) -> None:
        while True:
            await turn.model("more?")

    async with bench() as on:
        await on.submit("go")
        await on.run(app_of_one)
        assert await why(on) == ("budget", "turn has used 140 tokens, its budget is 100")

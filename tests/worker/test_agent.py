"""`Agent`: what it takes, and what it is asked in a turn."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from changeover_shared._errors import Invalid
from changeover_worker._agent import Agent, TurnContext
from changeover_worker._tools.tool import tool

TURN: TurnContext[str] = TurnContext(
    session_id="telegram:42", turn_id="t_3", context={"lang": "de"}, resources="pool"
)


@tool
def look_up(city: str) -> str:
    """Look a city up."""
    return city


@tool(name="look_up")
def look_up_too() -> None: ...


def test_an_agent_offers_its_tools_by_name_and_to_the_model() -> None:
    agent = Agent("assistant", model="main", tools=[look_up])
    assert agent.tools == (look_up,)
    assert agent.toolbox == {"look_up": look_up}
    assert agent.specs == (look_up.spec,)
    assert agent.on_takeover == "resume"


def test_an_agent_is_frozen() -> None:
    agent = Agent("assistant", model="main")
    with pytest.raises(FrozenInstanceError):
        agent.model = "other"  # type: ignore[misc]


def test_a_list_of_tools_that_changes_later_changes_no_agent() -> None:
    tools = [look_up]
    agent = Agent("assistant", model="main", tools=tools)
    tools.clear()
    assert agent.tools == (look_up,)


async def test_instructions_are_text_or_a_function_of_the_turn() -> None:
    def plain(turn: TurnContext[str]) -> str:
        return f"{turn.context['lang']} {turn.resources}"

    async def looked_up(turn: TurnContext[str]) -> str:
        return f"session {turn.session_id}"

    told = [
        await Agent("a", model="m", instructions=instructions).instruct(TURN)
        for instructions in ("Be brief.", plain, looked_up)
    ]
    assert told == ["Be brief.", "de pool", "session telegram:42"]
    assert await Agent("a", model="m").instruct(TURN) == ""


async def test_instructions_that_return_no_text_are_refused() -> None:
    def nothing(turn: TurnContext[Any]) -> Any:
        return None

    with pytest.raises(Invalid, match="agent 'a': instructions returned a NoneType, not text"):
        await Agent("a", model="m", instructions=nothing).instruct(TURN)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("two words", {}, "'two words' is not 1 to 64 characters"),
        ("", {}, "'' is not 1 to 64 characters"),
        ("a", {"model": ""}, "model names one of the app's models"),
        ("a", {"model": None}, "model names one of the app's models"),
        ("a", {"compaction": "small"}, "compaction is a Compaction or None"),
        ("a", {"instructions": 3}, "instructions are text or a function of the turn"),
        ("a", {"on_takeover": "retry"}, "on_takeover 'retry' is neither resume nor abort"),
        ("a", {"on_abort_input": "drop"}, "on_abort_input 'drop' is neither next_turn nor fold"),
        ("a", {"policy": "later"}, "agent 'a': 'later' is none of enqueue, steer"),
        ("a", {"policy": None}, "None is none of enqueue, steer"),
        ("a", {"tools": [look_up, look_up_too]}, "has two tools named 'look_up'"),
        ("a", {"tools": [print]}, "is no tool; decorate it with @tool"),
        ("a", {"tools": look_up}, "tools are a sequence of tools"),
    ],
)
def test_an_agent_that_could_not_run_is_refused(
    name: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(Invalid) as caught:
        Agent(name, **{"model": "main", **options})
    assert said in str(caught.value)

"""The app of the golden files: an agent with a tool, one that fails, one that is cut off, one that
takes its time."""

from __future__ import annotations

from changeover_shared._items import ToolResult
from changeover_worker import Agent, App, ModelRequest, tool
from changeover_worker.testing import ScriptedAnswer, ScriptedModel, call, fail, say


@tool
async def lookup_order(order: str) -> str:
    """Find an order."""
    return f"order {order}: 9000 cents, delivered"


@tool
async def broken_tool() -> str:
    """Raise."""
    raise ValueError("no stock")


def _support(request: ModelRequest) -> ScriptedAnswer:
    looked_up = isinstance(request.items[-1], ToolResult)
    return say("Order 7 was delivered.") if looked_up else call("lookup_order", order="7")


app = App(
    models={
        "main": ScriptedModel.by(_support),
        "slow": ScriptedModel.always(say("." * 600), chunk=1, pause=0.1),
        "broken": ScriptedModel.always(fail("provider_request", "as scripted")),
    },
    agents=[
        Agent("support", model="main", tools=[lookup_order]),
        Agent("slow", model="slow"),
        Agent("broken", model="broken"),
    ],
)

# test_refunds.py: run it with `pytest`
import asyncio

from changeover_worker import Agent, App, ModelRequest, ToolContext, ToolResult, tool
from changeover_worker.testing import ScriptedAnswer, ScriptedModel, User, call, say, sweep

PAID: list[str] = []
"""The bank's side: it pays once for a key, however often it is asked."""


@tool(effect="idempotent")
async def refund(ctx: ToolContext[None], order: str) -> str:
    """Refund an order."""
    if ctx.idempotency_key not in PAID:
        PAID.append(ctx.idempotency_key)
    return f"order {order} is refunded"


def answer(request: ModelRequest) -> ScriptedAnswer:
    """What the model says, from the conversation alone: a successor may ask the same again."""
    last = request.items[-1]
    if isinstance(last, ToolResult):
        return say(f"Done: {last.output}.")
    return call("refund", order="7")


def app() -> App:
    PAID.clear()
    agent = Agent("shop", model="main", tools=[refund])
    return App(agents=[agent], models={"main": ScriptedModel.by(answer, chunk=5)})


async def one_refund(user: User) -> None:
    asked = await user.submit("please refund order 7")
    assert await user.ended(asked) == "completed"
    assert len(PAID) == 1


def test_a_refund_is_paid_once_wherever_its_worker_dies() -> None:
    report = asyncio.run(sweep(one_refund, app))
    print(report)  # 8 store calls, 56 cases, 2.1 s

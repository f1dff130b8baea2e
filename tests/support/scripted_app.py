"""An app whose agents answer from scripts: at once, slowly, or with a failure."""

from __future__ import annotations

from changeover_shared._items import UserMessage
from changeover_worker import Agent, App, ModelRequest, Turn
from changeover_worker.testing import ScriptedModel, fail, say


def _echo(request: ModelRequest) -> str:
    said = [item.text for item in request.items if isinstance(item, UserMessage)]
    return f"you said: {said[-1]}"


app = App(
    models={
        "echo": ScriptedModel.by(lambda request: say(_echo(request)), chunk=8),
        "slow": ScriptedModel.always(say("slowly " * 1000), chunk=7, pause=0.05),
        "broken": ScriptedModel.always(fail("provider_request", "as scripted")),
    },
    agents=[
        Agent("assistant", model="echo"),
        Agent("slow", model="slow"),
        Agent("broken", model="broken"),
    ],
)


@app.handler("form")
async def form(turn: Turn) -> dict[str, str]:
    """Answer with what is no text."""
    return {"asked": turn.text}

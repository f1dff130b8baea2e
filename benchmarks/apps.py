"""The app that the measured workers run."""

from __future__ import annotations

import os

from changeover_worker import Agent, App, Model
from changeover_worker.testing import ScriptedModel, say

MODEL_URL = "BENCHMARKS_MODEL_URL"
"""The environment variable with the base address of a slow model server."""
CONSTANT = "one moment, please: " + "x" * 180
"""What every turn is answered with: 200 bytes."""
_FOR_EVER_S = 3600.0
_SHORT_S = 0.02


def _models() -> dict[str, Model | str]:
    found: dict[str, Model | str] = {
        "constant": ScriptedModel.always(say(CONSTANT)),
        "short": ScriptedModel.always(say(CONSTANT), delay=_SHORT_S),
        "streaming": ScriptedModel.always(say("word " * 10_000), chunk=5, pause=0.05),
        "slow": ScriptedModel.always(say(CONSTANT), delay=_FOR_EVER_S),
    }
    url = os.environ.get(MODEL_URL)
    return found | {"http": f"openai@{url}:slow"} if url else found


def _app() -> App:
    models = _models()
    return App(agents=[Agent(name, model=name) for name in models], models=models)


app = _app()

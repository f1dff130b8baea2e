"""The app of tests that start worker processes: one agent answers at once, one takes its time,
one always fails."""

from __future__ import annotations

from changeover_worker import Agent, App
from changeover_worker.testing import ScriptedModel, fail, say

app = App(
    agents=[
        Agent("quick", model="quick"),
        Agent("slow", model="slow"),
        Agent("broken", model="broken"),
    ],
    models={
        "broken": ScriptedModel.always(fail()),
        "quick": ScriptedModel.always(say("done")),
        "slow": ScriptedModel.always(say("." * 600), chunk=1, pause=0.1),
    },
)

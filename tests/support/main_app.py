"""The app of the system tests: an echoing provider over HTTP, which `MODEL_URL` names, and one tool
that leaves a trace."""

from __future__ import annotations

import os

from changeover_worker import Agent, App
from tests.support.traced_tool import lookup

app = App(
    models={"main": f"openai@{os.environ['MODEL_URL']}:echo"},
    agents=[Agent("assistant", model="main", instructions="Be brief.", tools=[lookup])],
)

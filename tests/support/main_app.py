"""The app of the system tests: an echoing provider over HTTP and one tool that leaves a trace.

`MODEL_URL` names the provider; each run of `lookup` adds a line to `TOOL_LOG`, so that a test can
count how often a call really ran.
"""

from __future__ import annotations

import os
from pathlib import Path

from changeover_worker import Agent, App, ToolContext, tool


@tool(effect="once", timeout="20s")
def lookup(ctx: ToolContext[None], key: str) -> str:
    """Look a key up."""
    line = f"{ctx.idempotency_key} {ctx.fence}\n".encode()
    with Path(os.environ["TOOL_LOG"]).open("ab", buffering=0) as log:
        log.write(line)
    return f"value of {key}"


app = App(
    models={"main": f"openai@{os.environ['MODEL_URL']}:echo"},
    agents=[Agent("assistant", model="main", instructions="Be brief.", tools=[lookup])],
)

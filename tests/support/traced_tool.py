"""A tool that leaves a trace: each run adds a line to the file that `TOOL_LOG` names, so that a
test can count how often a call really ran, whoever ran it."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from changeover_worker import ToolContext, tool


@tool(effect="once", timeout="20s")
def lookup(ctx: ToolContext[None], key: str) -> str:
    """Look a key up."""
    line = f"{ctx.idempotency_key} {ctx.fence}\n".encode()
    with Path(os.environ["TOOL_LOG"]).open("ab", buffering=0) as log:
        log.write(line)
    return f"value of {key}"


def runs_in(log: Path) -> Counter[str]:
    """How often each call has run."""
    text = log.read_text("utf-8") if log.exists() else ""
    return Counter(line.split()[0] for line in text.splitlines())

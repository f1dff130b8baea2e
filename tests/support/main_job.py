"""The parts of the main job: messages, a provider over HTTP, workers that can be killed."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

from changeover_shared._store.sync_store import SyncStore
from tests.support.processes import ROOT, Process, Processes, wait_until
from tests.support.promises import Sent

COUNT = 1000
EXAMPLES = ROOT / "examples" / "conversations.jsonl"
AGAIN = 130
"""How many sessions the repeated examples make."""
LEASE = {
    "CHANGEOVER_LEASE": "3s",
    "CHANGEOVER_RENEW": "1s",
    "CHANGEOVER_MARGIN": "500ms",
}
"""Short, so that a killed worker's sessions go on within seconds."""


def load(count: int, *, seed: int) -> list[Sent]:
    """`count` messages: those of the file that `CONVERSATIONS` names, then the examples, then the
    examples again over `AGAIN` other sessions; sessions are interleaved, each keeps its order."""
    extra = os.environ.get("CONVERSATIONS")
    found = [one for path in (extra, EXAMPLES) if path for one in _read(Path(path))]
    for n, one in zip(range(count - len(found)), cycle(_read(EXAMPLES)), strict=False):
        found.append(Sent(f"again:{n % AGAIN}", f"again:{n}", one.text))
    return _interleaved(found[:count], random.Random(seed))


def _read(path: Path) -> list[Sent]:
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [Sent(row["session"], row["id"], row["text"]) for row in rows]


def _interleaved(messages: Sequence[Sent], chance: random.Random) -> list[Sent]:
    queues: dict[str, list[Sent]] = {}
    for one in messages:
        queues.setdefault(one.session, []).append(one)
    order = [session for session, queue in queues.items() for _ in queue]
    chance.shuffle(order)
    return [queues[session].pop(0) for session in order]


def supplier(running: Processes, port: int) -> str:
    """Start the echoing provider; its base URL."""
    server = running.python(
        "model", "-m", "tests.support.model_server", "--port", str(port), "--pause", "0.01"
    )
    wait_until(lambda: "listening on" in server.text, "the model server to listen")
    return server.text.split("listening on ")[1].split()[0]


def start_worker(running: Processes, name: str, model_url: str, tool_log: Path) -> Process:
    """Start one worker of the test app."""
    return running.python(
        name,
        "-m",
        "changeover_worker",
        "tests.support.main_app:app",
        "--name",
        name,
        "--concurrency",
        "40",
        MODEL_URL=model_url,
        TOOL_LOG=str(tool_log),
        OPENAI_API_KEY="none",
        **LEASE,
    )


def ended(store: SyncStore, messages: Sequence[Sent]) -> int:
    """How many of the messages have ended."""
    states = store.submissions([(one.session, one.id) for one in messages])
    return sum(state is not None and state.ending is not None for state in states)

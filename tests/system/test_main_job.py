"""The main job: a thousand messages through three workers, two of which are killed."""

from __future__ import annotations

import json
import os
import random
import signal
from contextlib import closing
from pathlib import Path

import pytest

from changeover import SyncClient
from changeover_shared._settings import read_settings
from changeover_shared._store.sync_store import SyncStore
from tests.support.main_job import COUNT, ended, load, start_worker, supplier
from tests.support.processes import COMMAND, processes, wait_until
from tests.support.promises import violations
from tests.support.servers import flush_scripts, free_port, running_server
from tests.support.traced_tool import runs_in


@pytest.mark.timeout(300)
def test_a_thousand_messages_end_once_each_although_two_workers_are_killed(tmp_path: Path) -> None:
    """Order within each session, no journal gap, every completed tool result kept once, and that
    although the server forgets its scripts in mid-run."""
    seed = int(os.environ.get("SEED") or random.randrange(10**6))
    chance = random.Random(seed)
    messages = load(COUNT, seed=seed)
    assert len(messages) == COUNT
    assert len({one.session for one in messages}) > 200
    source = tmp_path / "messages.jsonl"
    source.write_text(
        "".join(
            json.dumps({"session": m.session, "id": m.id, "text": m.text}, ensure_ascii=False)
            + "\n"
            for m in messages
        ),
        "utf-8",
    )
    tool_log = tmp_path / "tools.log"
    with running_server() as url, processes(tmp_path, {"CHANGEOVER_REDIS_URL": url}) as running:
        model = supplier(running, free_port())
        workers = [start_worker(running, f"w{i}", model, tool_log) for i in range(3)]
        submit = running.start("submit", COMMAND, "submit", "--many", str(source))
        store = SyncStore.open(url, read_settings())
        with SyncClient(url) as client, closing(store):
            for victim, share in zip(chance.sample(workers, 2), (0.15, 0.4), strict=True):
                wait_until(
                    lambda share=share: ended(store, messages) >= COUNT * share,  # type: ignore[misc]
                    f"{share:.0%} endings (seed {seed})",
                    within_s=120,
                )
                victim.send(signal.SIGKILL)
                flush_scripts(url)
            wait_until(lambda: submit.popen.poll() is not None, "the end of submit", within_s=60)
            assert submit.popen.returncode == 0, submit.text[-2000:]
            wait_until(
                lambda: ended(store, messages) == COUNT,
                f"{COUNT} endings (seed {seed})",
                within_s=120,
            )
            assert violations(client, messages) == [], f"seed {seed}"
    runs = runs_in(tool_log)
    assert len(runs) > 20, "the tool hardly ran"
    assert max(runs.values()) == 1, f"a tool that is `once` ran twice: {runs.most_common(3)}"

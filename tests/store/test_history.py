"""Concurrent workers and producers on a real server, and what they were told held against G1-G4."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from changeover_shared._store.executor import Executor
from changeover_shared._store.fleet import Fleet
from changeover_shared._store.lease_store import LeaseStore
from changeover_shared._store.store import Store
from changeover_shared._store.sync_executor import SyncExecutor
from changeover_shared._store.sync_fleet import SyncFleet
from changeover_shared._store.sync_store import SyncStore
from tests.support.fleet import small_settings
from tests.support.history import judge
from tests.support.history_recorder import RecordedFleet, RecordedSyncFleet, Recorder, final_states
from tests.support.history_records import Record, read_records
from tests.support.history_workload import SESSIONS, InThreads, chosen_seed, run_fleet
from tests.support.processes import ROOT
from tests.support.proxy import proxy_before
from tests.support.servers import SERVERS
from tests.support.targets import TARGETS, Targets

WORKERS, COUNT = 4, 80


async def recorded_run(url: str, seed: int, *, count: int = COUNT) -> list[Record]:
    """Run a fleet on a server, check its history, and return it."""
    settings = small_settings(max_inbox=6)
    recorders = [Recorder(name) for name in ("p0", "p1", *(f"w{i}" for i in range(WORKERS)))]
    async with AsyncExitStack() as closing:

        async def joined(recorder: Recorder) -> Fleet:
            executor = await Executor.connect(url)
            closing.push_async_callback(executor.aclose)
            return RecordedFleet(await Fleet.join(executor, settings), recorder)

        def sync_joined(recorder: Recorder) -> SyncFleet:
            executor = SyncExecutor.connect(url)
            closing.callback(executor.close)
            return RecordedSyncFleet(SyncFleet.join(executor, settings), recorder)

        store = Store(await joined(recorders[0]))
        sync_store = SyncStore(await asyncio.to_thread(sync_joined, recorders[1]))
        workers = [LeaseStore(await joined(recorder)) for recorder in recorders[2:]]
        producers = ((store, recorders[0]), (InThreads(sync_store), recorders[1]))
        sent = await run_fleet(producers, workers, seed, count=count)
        final = await final_states(store, SESSIONS)
    history = [record for recorder in recorders for record in recorder.records]
    verdict = judge(history, final)
    assert verdict.violations == []
    assert any(id in final[session].receipts for session, id in sent)
    return history


@pytest.mark.parametrize("kind", [one for one in TARGETS if one != "fakeredis"])
async def test_whatever_concurrent_workers_do_the_guarantees_hold(
    targets: Targets, kind: str
) -> None:
    """G1, G2, G3, G4."""
    seed = chosen_seed()
    targets[kind].flush()
    history = await recorded_run(targets[kind].url, seed)
    words = Counter((record.script, record.word) for record in history)
    # The run has been through what the checks are about.
    for script, word in (
        ("claim", "GRANTED"), ("commit", "OK"), ("append", "OK"), ("submit", "ACCEPTED"),
    ):  # fmt: skip
        assert words[script, word], f"no {script} was answered {word}: {words}"
    refused = sum(words[script, word] for script in ("append", "commit", "renew")
                  for word in ("LOST", "GONE", "EXPIRED"))  # fmt: skip
    assert refused, words


@pytest.mark.parametrize("kind", SERVERS)
async def test_whatever_replies_are_lost_the_guarantees_hold(targets: Targets, kind: str) -> None:
    """G1, G2, G3, G4, with every fifth reply of a script lost, by a seed."""
    seed = chosen_seed()
    targets[kind].flush()
    with proxy_before(targets[kind].url) as proxy:
        proxy.lose_at_random(0.2, seed)
        history = await recorded_run(proxy.url, seed, count=COUNT // 4)
        assert proxy.lost
    words = Counter(record.word for record in history)
    assert words[""] and words["DUPLICATE"] + words["REPLAY"] + words["ALREADY"], words


RECORDED = """
import asyncio, sys
from pathlib import Path
from tests.support.history_recorder import record_this_process
from changeover_shared._store.lease_store import LeaseStore
from changeover_shared._store.records import Lease
from tests.support.fleet import small_settings

async def main(url):
    store = await LeaseStore.open(url, small_settings())
    await store.renew(0, [Lease("s", 1, "w1:aa", "nonce", "assistant@1")], ttl_ms=1000)
    await store.executor.command("CLIENT", "PAUSE", 200, "WRITE")
    await asyncio.wait_for(
        store.renew(0, [Lease("s", 2, "w1:aa", "nonce", "assistant@1")], ttl_ms=1000), 0.01
    )

record_this_process(Path(sys.argv[1]), "w1")
asyncio.run(main(sys.argv[2]))
"""


def test_a_process_leaves_the_record_of_what_it_asked_and_never_heard_of(
    targets: Targets, tmp_path: Path
) -> None:
    """A process on its own records into a file, which is whole whenever it dies."""
    targets[SERVERS[-1]].flush()
    command = [sys.executable, "-c", RECORDED, str(tmp_path), targets[SERVERS[-1]].url]
    done = subprocess.run(command, cwd=ROOT, stderr=subprocess.PIPE, timeout=60)
    assert b"TimeoutError" in done.stderr, done.stderr
    found = read_records(tmp_path.iterdir())
    assert [(one.script, one.session, one.lease, one.word) for one in found] == [
        ("renew", "s", "1|w1:aa|nonce", "GONE"),
        ("renew", "s", "2|w1:aa|nonce", ""),
    ]
    assert {one.who.partition(":")[0] for one in found} == {"w1"}

"""`changeover drain`, `evict` and what `workers` says beside them."""

from __future__ import annotations

import json

import pytest

from changeover import DrainProgress, SyncOperator, WorkerInfo
from changeover.cli import main
from changeover.cli._look import worker_note
from changeover.cli._replace import drain_line
from changeover_shared._results import Draining
from changeover_shared._settings import read_settings
from changeover_shared._store.sync_store import SyncStore
from tests.support.servers import running_server

A = DrainProgress(worker="b@host-2", incarnation="b@host-2:0000000a", state="asked", sessions=17)


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({}, "told to drain, it holds 17 sessions"),
        ({"sessions": 1}, "told to drain, it holds 1 session"),
        ({"state": "draining", "grace_ms": 25_000}, "draining 17 sessions, grace 25 s"),
        ({"state": "draining", "handed_off": 14}, "14 of 17 handed off"),
        (
            {"state": "drained", "handed_off": 17, "forced": 1, "took_ms": 25_300},
            "drained in 25 s: 16 at a step boundary, 1 by force",
        ),
        (
            {"state": "drained", "handed_off": 15, "took_ms": 900},
            "drained in 0.9 s: 15 at a step boundary, 2 left to be taken over",
        ),
        (
            {"state": "silent"},
            (
                "silent: what it holds is taken over when its leases end, or now: "
                "changeover evict b@host-2:0000000a"
            ),
        ),
        ({"state": "gone"}, "gone without having drained: what it held is taken over"),
    ],
)
def test_a_drain_is_told_in_lines(changed: dict[str, object], line: str) -> None:
    assert drain_line(A.model_copy(update=changed)) == f"b@host-2  {line}"


@pytest.mark.parametrize(
    ("changed", "note"),
    [
        ({}, ""),
        (
            {"state": "draining", "draining": Draining(sessions=17, left=3)},
            "14 of 17 handed off",
        ),
        ({"state": "silent"}, "takeover in 6.0 s · changeover evict b:0000000a"),
        (
            {"state": "silent", "renewed_at_ms": 1},
            "its leases are over · changeover evict b:0000000a",
        ),
    ],
)
def test_workers_says_what_becomes_of_one(changed: dict[str, object], note: str) -> None:
    info = WorkerInfo(worker="b", incarnation="b:0000000a", renewed_at_ms=1_000_000)
    now_ms = 1_024_000
    assert worker_note(info.model_copy(update=changed), now_ms, 30_000) == note


def test_the_commands_say_what_they_did_and_how_it_ended(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with running_server() as url:
        monkeypatch.setenv("CHANGEOVER_REDIS_URL", url)
        store = SyncStore.open(url, read_settings())
        info = WorkerInfo(worker="a", incarnation="a:0000000a", build="1.4", sessions=2)

        def register(renewed_at_ms: int) -> None:
            said = info.model_copy(update={"renewed_at_ms": renewed_at_ms})
            entry = said.model_dump_json()
            store._fleet.executor.command("HSET", store.keys.workers, info.incarnation, entry)

        assert main(["drain", "--all", "--yes"]) == 0
        assert "no worker is registered" in capsys.readouterr().err
        for wrong in (["drain"], ["drain", "a", "--all"], ["drain", "a", "--grace", "soon"]):
            assert main(wrong) == 2
        for unknown in (["drain", "a"], ["drain", "--build", "1.3"], ["evict", "a"]):
            assert main(unknown) == 3
        capsys.readouterr()

        register(store.read_time())
        assert main(["drain", "--build", "1.4", "--json"]) == 0
        (asked,) = map(json.loads, capsys.readouterr().out.splitlines())
        assert (asked["state"], asked["sessions"]) == ("asked", 2)
        # Nobody can be asked here.
        assert main(["drain", "--all"]) == 2
        assert main(["evict", "a"]) == 2
        with SyncOperator(url) as operator:
            assert [one.worker for one in operator.workers()] == ["a"]

        register(1)
        assert main(["drain", "a", "--wait"]) == 1
        assert "silent" in capsys.readouterr().out
        assert main(["evict", "a"]) == 0
        assert capsys.readouterr().out == "a:0000000a evicted: 0 sessions go on elsewhere\n"
        register(store.read_time())
        assert main(["evict", "a", "--yes", "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {
            "worker": "a",
            "incarnation": "a:0000000a",
            "sessions": 0,
        }
        store.close()

"""Sessions that kill or block their workers end in quarantine, and the others do not notice."""

from __future__ import annotations

import json
import resource
import subprocess
from pathlib import Path
from typing import Any

import pytest

from changeover import Ending, Quarantined, SessionQuarantined, SyncOperator
from tests.support.processes import COMMAND, Processes, processes, wait_until
from tests.support.servers import running_server

APP = "tests.support.poison_app:app"
QUICK = {"CHANGEOVER_LEASE": "3s", "CHANGEOVER_RENEW": "1s", "CHANGEOVER_MARGIN": "0.5s"}
MIB = 1024**2


def stopped(client: SyncOperator) -> tuple[Quarantined, ...]:
    return client.quarantined().items


def command(url: str, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (COMMAND, *args, "--redis", url), capture_output=True, text=True, timeout=60, check=False
    )


def run_others(client: SyncOperator, count: int) -> None:
    """All of them complete, each once."""
    for number in range(count):
        client.submit(f"healthy:{number}", "hello", id=f"m:{number}")
    endings = [
        client.wait(f"healthy:{number}", f"m:{number}", timeout="120s").ending
        for number in range(count)
    ]
    assert endings == [Ending.COMPLETED] * count


def start_pair(running: Processes, fixed: Path, **environment: str) -> None:
    running.start(
        "workers", COMMAND, "worker", APP, "-p", "2", POISON_FIXED=str(fixed), **environment
    )


@pytest.mark.timeout(240)
def test_a_session_whose_tool_ends_the_process_is_stopped_and_goes_on_after_the_fix(
    tmp_path: Path,
) -> None:
    """While a hundred others on the same workers complete."""
    fixed = tmp_path / "fixed"
    with running_server() as url, processes(tmp_path, {"CHANGEOVER_REDIS_URL": url}) as running:
        start_pair(running, fixed, **QUICK)
        with SyncOperator(url) as client:
            client.submit("poison:1", "poison exit", id="p:1")
            run_others(client, 100)
            wait_until(lambda: bool(stopped(client)), "the quarantine", within_s=90)
            (one,) = stopped(client)
            assert (one.session_id, one.attempts, one.cause) == ("poison:1", 5, "attempts")
            assert (one.error, one.doing) == ("the worker exited with code 7", "tool poison")
            assert (one.turn_id, one.submission_ids) == ("t_1", ("p:1",))
            why = "5 grants in a row without progress; last: the worker exited with code 7 on "
            assert one.why.startswith(why) and one.why.endswith(" in tool poison")
            told = [e for e in client.events("poison:1").items if isinstance(e, SessionQuarantined)]
            assert [(e.attempts, e.worker) for e in told] == [(5, one.worker)]
            listed = json.loads(command(url, "quarantine", "--json").stdout)
            assert [found["why"] for found in listed["items"]] == [one.why]
            assert client.explain("poison:1").remedy == "changeover redrive poison:1"
            assert one.why in command(url, "show", "poison:1").stdout

            fixed.touch()
            redriven = command(url, "redrive", "poison:1")
            assert (redriven.returncode, redriven.stdout) == (
                0, "poison:1 ready: attempts reset, transcript untouched\n",
            )  # fmt: skip
            outcome = client.wait("poison:1", "p:1", timeout="60s")
            assert (outcome.ending, outcome.text) == (Ending.COMPLETED, "It was harmless.")
            assert stopped(client) == ()


@pytest.mark.timeout(240)
def test_a_session_whose_tool_eats_the_memory_of_its_process_is_stopped(tmp_path: Path) -> None:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    limit = str(max(400 * MIB, 2 * min(peak, 400 * MIB)))
    with running_server() as url, processes(tmp_path, {"CHANGEOVER_REDIS_URL": url}) as running:
        start_pair(running, tmp_path / "fixed", POISON_MEMORY=limit, **QUICK)
        with SyncOperator(url) as client:
            client.submit("poison:1", "poison memory", id="p:1")
            run_others(client, 10)
            wait_until(lambda: bool(stopped(client)), "the quarantine", within_s=120)
            (one,) = stopped(client)
            assert one.error == "the worker was killed by SIGKILL"
            assert (one.attempts, one.doing) == (5, "tool poison")


@pytest.mark.timeout(240)
def test_a_session_whose_tool_blocks_the_event_loop_is_stopped_by_the_next_worker(
    tmp_path: Path,
) -> None:
    """Its keeper would renew for ever; the step's own time ends the lease, and the time that was
    lost ends the session. The blocked process keeps nothing: what it held goes on elsewhere."""
    given: dict[str, Any] = {
        "POISON_FIXED": str(tmp_path / "fixed"),
        "POISON_SLACK_MS": "1000",
        "CHANGEOVER_NO_PROGRESS_TIMEOUT": "1s",
        **QUICK,
    }
    with (
        running_server() as url,
        processes(tmp_path, {"CHANGEOVER_REDIS_URL": url}) as running,
        SyncOperator(url) as client,
    ):
        running.start("a", COMMAND, "worker", APP, "--name", "a", **given)
        client.submit("poison:1", "poison block", id="p:1")
        wait_until(
            lambda: bool(client.view("poison:1").tools), "the tool has been started", within_s=60
        )
        running.start("b", COMMAND, "worker", APP, "--name", "b", **given)
        wait_until(lambda: bool(stopped(client)), "the quarantine", within_s=90)
        (one,) = stopped(client)
        assert (one.cause, one.attempts, one.doing) == ("time", 0, "tool poison")
        assert (one.worker or "").startswith("a:")
        run_others(client, 10)

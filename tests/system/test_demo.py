"""`changeover demo`: its three acts on the embedded server, and a promise that is broken."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.payload_keys import KeyFiles
from tests.support.processes import COMMAND, ROOT, wait_until

PACKAGES = ("producer/changeover", "worker/changeover_worker", "shared/changeover_shared")

OPENING = (
    r"valkey [\d.]+ \(embedded\) 127\.0\.0\.1:\d+ · worker a pid (\d+) · worker b pid \d+ · .*"
)
ASKED = r"you            Are both regions healthy\?"
STEP_0 = (
    r'a  fence 1     step 0  check_region\("eu"\) ok   check_region\("us"\) ok '
    r"+committed, seq \d+"
)
CUT = r"a  fence 1     step 1  Both regions are hea"
ANSWER = r"b  fence 2     step 1  Both regions are healthy\. +committed, seq \d+"
SPAN = r"\d+(\.\d)? m?s"
KEPT_STEP = "step 0 kept, its 2 results not run again"
KEPT = (
    r"journal 1\.\.\d+ without a gap · 1 message, 1 answer · check_region ran twice, as it should "
    r"· fences 1, 2 · "
)
NEXT = (
    r"next:  \S*changeover follow demo:\d+ --from start  ·  "
    r"\S*changeover explain demo:\d+  ·  .*"
)

ACTS = {
    "kill": [
        OPENING,
        ASKED,
        STEP_0,
        CUT,
        r"-- kill -9 (\d+) -+",
        rf"b  fence 2     took over after {SPAN}: {KEPT_STEP}; step 1 asked again",
        ANSWER,
        KEPT + "1 takeover",
        NEXT,
    ],
    "freeze": [
        OPENING,
        ASKED,
        STEP_0,
        CUT,
        r"-- kill -STOP (\d+): its commit of step 1 is on the wire, held back -+",
        rf"b  fence 2     took over after {SPAN}: the lease of a had run out",
        r"a  fence 1     late write refused: fence 2 holds demo:\d+",
        r"a  fence 1     woke up, saw its loss, and wrote nothing more",
        ANSWER,
        KEPT + "1 takeover · 1 late write refused",
        NEXT,
    ],
    "drain": [
        OPENING,
        ASKED,
        r"a  fence 1     step 0  Let me look at both ",
        r"-- kill -TERM (\d+): it ends its step and hands the session off -+",
        STEP_0,
        rf"b  fence 2     went on {SPAN} after the step boundary: {KEPT_STEP}",
        rf"a  fence 1     drained and gone {SPAN} after the signal, exit 0",
        ANSWER,
        KEPT + "1 hand-off",
        NEXT,
    ],
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory in which every act is performed."""
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def performed(place: Path) -> dict[str, subprocess.CompletedProcess[str]]:
    """What each act has told, one after the other on the same data."""
    return {act: changeover(place, "demo", "--act", act) for act in ACTS}


def changeover(directory: Path, *args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, *args],
        cwd=directory,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("act", ACTS)
def test_an_act_is_told_line_by_line_and_keeps_every_promise(
    act: str, performed: dict[str, subprocess.CompletedProcess[str]]
) -> None:
    told = performed[act]
    assert (told.returncode, told.stderr) == (0, "")
    lines = told.stdout.splitlines()
    for line, pattern in zip(lines, ACTS[act], strict=True):
        assert re.fullmatch(pattern, line), line
    found = [re.search(r"worker a pid (\d+)|kill -\w+ (\d+)", line) for line in lines]
    pids = [match[1] or match[2] for match in found if match]
    assert pids[0] == pids[1], "the signal goes to worker a"


def test_each_run_has_a_session_of_its_own_and_leaves_no_process(
    place: Path, performed: dict[str, subprocess.CompletedProcess[str]]
) -> None:
    for number, told in enumerate(performed.values(), 1):
        assert f"changeover explain demo:{number}  " in told.stdout
    assert no_process_holds(place)


def test_the_session_of_the_demo_can_be_looked_at_afterwards(
    place: Path, performed: dict[str, subprocess.CompletedProcess[str]]
) -> None:
    followed = changeover(place, "follow", "demo:1", "--from", "start", "--until", "demo:1:1")
    assert "Both regions are healthy." in followed.stdout
    assert "── b took over (a " in followed.stdout
    assert "[idle]" in changeover(place, "explain", "demo:1").stdout
    assert '"items": []' in changeover(place, "workers", "--json").stdout


def test_the_demo_runs_on_a_fleet_that_encrypts(tmp_path: Path) -> None:
    given = KeyFiles(tmp_path).named("old")
    told = changeover(tmp_path, "demo", "--act", "freeze", CHANGEOVER_PAYLOAD_KEYS=given)
    assert (told.returncode, told.stderr) == (0, "")
    assert len(told.stdout.splitlines()) == len(ACTS["freeze"])


def test_without_the_lease_check_the_late_write_lands_and_the_act_says_so(tmp_path: Path) -> None:
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package)
    script = tmp_path / "shared/changeover_shared/lua/commit.lua"
    guard = "refused = lease_guard(s, lease) or unfit(s)\nif refused then return refused end\n"
    assert guard in script.read_text()
    script.write_text(script.read_text().replace(guard, ""))
    roots = (str(tmp_path / package.partition("/")[0]) for package in PACKAGES)
    path = os.pathsep.join(roots)
    told = changeover(tmp_path, "demo", "--act", "freeze", "--json", PYTHONPATH=path)
    assert told.returncode == 1
    verdict = json.loads(told.stdout)
    assert (verdict["act"], verdict["session_id"]) == ("freeze", "demo:1")
    assert verdict["broken"] == ["the late write was answered OK, not LOST: two writers"]
    assert "check_region ran twice, as it should" in verdict["kept"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_behind_when_the_demo_is_stopped(
    number: signal.Signals, tmp_path: Path
) -> None:
    with subprocess.Popen(
        [COMMAND, "demo", "--act", "freeze"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as demo:
        assert demo.stdout is not None
        while "kill -STOP" not in (line := demo.stdout.readline()):
            assert line, "the act ended before worker a was stopped"
        demo.send_signal(number)
        _, err = demo.communicate(timeout=30)
    assert (demo.returncode, err) == (130, "")
    assert no_process_holds(tmp_path)


def no_process_holds(directory: Path) -> bool:
    """Whether every process that was started in a directory is gone, servers included."""

    def cwd_of(process: Path) -> str:
        try:
            return str((process / "cwd").readlink())
        except OSError:
            return ""

    def gone() -> bool:
        running = [p for p in Path("/proc").iterdir() if p.name.isdigit()]
        return not any(cwd_of(p).startswith(str(directory)) for p in running)

    wait_until(gone, "the end of every process", within_s=10)
    return True

"""Who is compared, with which settings, and in which environment it runs."""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks._processes import ROOT

JOBS = Path(__file__).parent / "jobs"
ENVIRONMENTS = ROOT / ".benchmarks"
"""Where the peers are installed; kept between runs."""


@dataclass(frozen=True)
class Peer:
    """A queue with settings; the commands run in the folder of the jobs."""

    name: str
    settings: str
    """What is not the default, for people."""
    packages: tuple[str, ...]
    """What is installed for it; nothing for what runs in this environment."""
    worker: tuple[str, ...]
    module: str
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def programs(self) -> Path:
        """Where its programs are."""
        if not self.packages:
            return Path(sys.executable).parent
        return ENVIRONMENTS / self.packages[0].partition("[")[0] / "bin"

    @property
    def worker_command(self) -> list[str]:
        """What starts one worker."""
        return [str(self.programs / self.worker[0]), *self.worker[1:]]

    @property
    def producer_command(self) -> list[str]:
        """What takes jobs from its standard input."""
        return [str(self.programs / "python"), "-c", f"import {self.module}; {self.module}.main()"]

    def install(self) -> None:
        """Make its environment, if that is not there."""
        if not self.packages or (self.programs / "installed").exists():
            return
        venv.create(self.programs.parent, with_pip=True)
        python = self.programs / "python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", *self.packages], check=True)
        (self.programs / "installed").touch()

    def version(self) -> str:
        """What is measured."""
        package = self.packages[0].partition("[")[0] if self.packages else "changeover"
        asked = f"import importlib.metadata as m; print(m.version({package!r}))"
        command = [str(self.programs / "python"), "-c", asked]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


_RQ = ("rq", "worker", "--quiet", "--url", "{url}", "default")
_CELERY = ("celery", "-A", "celery_jobs", "worker", "-c", "4", "-l", "ERROR")
_CHANGEOVER = ("python", "-m", "changeover_worker", "changeover_jobs:app")

PEERS = (
    Peer("rq", "defaults", ("rq",), _RQ, "rq_jobs"),
    Peer("rq-retry", "Retry(max=10)", ("rq",), _RQ, "rq_jobs", {"KILLS_RETRY": "1"}),
    Peer("arq", "max_tries 10", ("arq",), ("arq", "arq_jobs.WorkerSettings"), "arq_jobs"),
    Peer(
        "arq-short",
        "max_tries 10, job_timeout 10 s",
        ("arq",),
        ("arq", "arq_jobs.WorkerSettings"),
        "arq_jobs",
        {"KILLS_TIMEOUT": "10"},
    ),
    Peer("celery", "defaults", ("celery[redis]",), _CELERY, "celery_jobs"),
    Peer(
        "celery-late",
        "acks_late, reject_on_worker_lost, visibility_timeout 30 s, prefetch 1",
        ("celery[redis]",),
        _CELERY,
        "celery_jobs",
        {"KILLS_LATE": "1"},
    ),
    Peer("changeover", "defaults", (), _CHANGEOVER, "changeover_jobs"),
)

"""Write the synchronous twins of the asynchronous sources, or check that they are up to date.

    python -m tools.generate_sync            write every twin
    python -m tools.generate_sync --check    change nothing; exit 1 when one is stale

A source that may be transformed awaits one thing at a time: no tasks, no gathering. What cannot be
said so is written twice by hand (`executor.py`, `wire.py`, `_chunks.py`).
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import unasync  # type: ignore[import-untyped]

ROOT: Final = Path(__file__).resolve().parent.parent

GENERATED: Final[dict[str, tuple[str, ...]]] = {
    "shared/changeover_shared/_store": (
        "agent_policies",
        "eviction",
        "fleet",
        "fsync",
        "gauges",
        "orders",
        "quarantine",
        "schedules",
        "servers",
        "store",
        "upkeep",
    ),
    "producer/changeover": (
        "_catalogue",
        "_client",
        "_deep",
        "_doctor",
        "_drain",
        "_follow",
        "_operator",
        "_payload_keys",
        "_planner",
        "_purge",
        "_queues",
        "_redrive",
        "_reader",
        "_submit_many",
        "_topology",
        "_turn_page",
        "_wait",
        "_watch",
    ),
}
"""Package folder -> modules; the twin of `x.py` is `sync_x.py`, that of `_x.py` `_sync_x.py`."""

WRITTEN: Final = ("executor", "wire")
"""Modules whose twins are written by hand under the same rule of names."""

NAMES: Final = {
    "AgentPolicies": "SyncAgentPolicies",
    "AsyncItems": "Items",
    "Client": "SyncClient",
    "Cluster": "SyncCluster",
    "Eviction": "SyncEviction",
    "Executor": "SyncExecutor",
    "Fleet": "SyncFleet",
    "Gauges": "SyncGauges",
    "Follower": "SyncFollower",
    "OneServer": "SyncOneServer",
    "Operator": "SyncOperator",
    "Orders": "SyncOrders",
    "Quarantine": "SyncQuarantine",
    "Planner": "SyncPlanner",
    "Reader": "SyncReader",
    "Schedules": "SyncSchedules",
    "Servers": "SyncServers",
    "Store": "SyncStore",
    "Upkeep": "SyncUpkeep",
    "aclose": "close",
    "aclosing": "closing",
    "Watch": "SyncWatch",
    "Wire": "SyncWire",
    "async_client": "sync_client",
    "aiter_chunks": "iter_chunks",
}

TEXTS: Final = {
    r"^import asyncio$": "import threading\nimport time",
    r"\basyncio\.sleep\b": "time.sleep",
    r"\basyncio\.Lock\b": "threading.Lock",
}


def twin_of(source: Path) -> Path:
    """Where the twin of a source is."""
    return source.with_name(_twin_name(source.name))


def _twin_name(name: str) -> str:
    return f"_sync{name}" if name.startswith("_") else f"sync_{name}"


def transform(source: Path) -> str:
    """What the twin of a source must hold."""
    text = source.read_text()
    modules = "|".join((*WRITTEN, *(name for names in GENERATED.values() for name in names)))
    text = re.sub(
        rf"^(\s*from [\w.]+\.)({modules}) import",
        lambda found: f"{found[1]}{_twin_name(found[2])} import",
        text,
        flags=re.M,
    )
    for pattern, replacement in TEXTS.items():
        text = re.sub(pattern, replacement, text, flags=re.M)
    header = f"# Written by tools/generate_sync.py from {source.name}: change that file instead.\n"
    return _ruff(header + _without_async(text), twin_of(source))


def _without_async(text: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder, "async", "module.py")
        given.parent.mkdir()
        given.write_text(text)
        rule = unasync.Rule(
            fromdir=f"{folder}/async/", todir=f"{folder}/sync/", additional_replacements=NAMES
        )
        unasync.unasync_files([str(given)], [rule])
        result = Path(folder, "sync", "module.py").read_text()
    left = re.search(r"^.*\b(asyncio|async|await)\b.*$", _code_of(result), flags=re.M)
    if left is not None:
        raise SystemExit(f"cannot be made synchronous: {left[0].strip()}")
    return result


def _code_of(text: str) -> str:
    """The text without its docstrings and comments, which may speak of what they like."""
    return re.sub(r'""".*?"""|#[^\n]*', "", text, flags=re.S)


def _ruff(text: str, path: Path) -> str:
    """Delegate where only a loop of yields is left, sort imports, and lay the text out."""
    delegate = ("check", "--fix", "--unsafe-fixes", "--select", "UP028", "--quiet")
    for command in (delegate, ("check", "--fix", "--quiet"), ("format", "--quiet")):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(path), "-"],
            input=text,
            capture_output=True,
            text=True,
            cwd=ROOT,
        )
        if done.returncode not in (0, 1) or not done.stdout:
            raise SystemExit(f"ruff {command[0]} of {path.name} failed: {done.stderr}")
        text = done.stdout
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check every twin; answers with the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="change nothing, fail when stale")
    check = parser.parse_args(arguments).check
    stale = []
    for folder, modules in GENERATED.items():
        for module in modules:
            source = ROOT / folder / f"{module}.py"
            twin, wanted = twin_of(source), transform(source)
            if not twin.exists() or twin.read_text() != wanted:
                stale.append(twin.relative_to(ROOT))
                if not check:
                    twin.write_text(wanted)
    for path in stale:
        sys.stdout.write(f"{'stale' if check else 'wrote'} {path}\n")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())

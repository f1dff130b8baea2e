"""Every code that `doctor` may say stands in its page, and the page names no other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args, get_type_hints

from changeover_shared._store.soundness import Defect

ROOT = Path(__file__).resolve().parents[2]
SOURCES = (
    "shared/changeover_shared/_server/check.py",
    "shared/changeover_shared/_server/diagnosis.py",
    "shared/changeover_shared/_server/topology.py",
    "producer/changeover/_doctor.py",
    "producer/changeover/_fleet_config.py",
    "producer/changeover/_fleet_health.py",
    "producer/changeover/_tally.py",
    "producer/changeover/_topology.py",
)
SEEN = {"server", "cluster", "sentinel", "fleet", "deep"}
"""What the lines that are in order are called."""


def test_the_page_has_every_code() -> None:
    said = set(get_args(get_type_hints(Defect)["code"]))
    for name in SOURCES:
        text = (ROOT / name).read_text("utf-8")
        said.update(re.findall(r'(?:code=|_note\()"(\w+)"', text))
    page = (ROOT / "docs/doctor.md").read_text("utf-8")
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    clusters = re.findall(r"Of a Cluster: .*?\n\n", page, flags=re.DOTALL)
    written = set(re.findall(r"`(\w+)`", " ".join([*rows, *clusters])))
    assert written - {"ok", "warn", "FAIL"} == said - SEEN

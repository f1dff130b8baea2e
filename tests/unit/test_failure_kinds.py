"""The operator's table of failures names every kind that a turn of this package can fail with."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import changeover_worker
from changeover_worker._models.failures import _REMEDY

PAGE = Path(__file__).parents[2] / "docs" / "operating.md"
WORKER = Path(changeover_worker.__file__).parent
MAKES = {"Failure": 0, "ModelError": 0, "_failure": 0, "failure": 1, "failure_of": 1, "fail": 0}
"""What makes a failure of a kind, and the place of the kind among its arguments."""


def kinds_made() -> set[str]:
    """The kinds that stand in the source."""
    return {
        kind
        for file in WORKER.rglob("*.py")
        if file.name != "scripted.py"
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Call)
        for kind in kinds_of(node)
    }


def kinds_of(call: ast.Call) -> Iterator[str]:
    called = getattr(call.func, "id", getattr(call.func, "attr", ""))
    if called in MAKES:
        given = [word.value for word in call.keywords if word.arg == "kind"]
        for value in (*call.args[MAKES[called] :][:1], *given):
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value.value


def kinds_told() -> set[str]:
    """The kinds in the first column of the page's table."""
    section = PAGE.read_text("utf-8").partition("## Why a turn failed")[2].partition("\n## ")[0]
    rows = (line for line in section.splitlines() if line.startswith("| `"))
    return {kind for row in rows for kind in re.findall(r"`(\w+)`", row.split("|")[1])}


def test_every_kind_of_failure_is_told_to_operators() -> None:
    assert kinds_told() == kinds_made() | set(_REMEDY)

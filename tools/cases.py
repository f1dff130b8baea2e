"""The reference cases and the holes: each id with what is true of it and the tests that name it.

A test names its cases at the start of a line of its docstring, `Case 001-5: what holds.` or
`Cases 001-5, M1: what holds.`; where the behaviour was chosen differently, a sentence of the same
paragraph begins with `Difference:`. It names the holes that it guards in the same place, `Hole 3.`,
`Hole 3: what holds.`, `Holes 3, 7: what holds.` or `Holes 3 and 7: what holds.`
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
TESTS: Final = ROOT / "tests"
LIST: Final = ROOT / "tools" / "cases.toml"
HOLES: Final = ROOT / "tools" / "holes.toml"

_ID: Final = r"(?:\d{3}-\d+|[A-Z]\d+)"
_NAMED: Final = re.compile(rf"^(Cases? {_ID}(?:, {_ID})*): (.*)$", re.S)
_BEGUN: Final = re.compile(rf"^Cases? {_ID}")
_HOLES: Final = re.compile(r"^(Holes? \d+(?:(?:, | and )\d+)*)\b")
_DIFFERENCE: Final = re.compile(r"Difference: (.*)$", re.S)


@dataclass(frozen=True)
class Claim:
    """One test that names cases or holes."""

    test: str
    """`tests/store/test_submit.py::test_name`."""
    cases: tuple[str, ...]
    """The ids; `hole 3` for a hole."""
    difference: str = ""


def known() -> Mapping[str, Mapping[str, str]]:
    """Group -> id -> what is true of the case, in the order of the list."""
    return tomllib.loads(LIST.read_text("utf-8"))


def known_holes() -> tuple[Mapping[str, str], Mapping[str, str]]:
    """What is true of each hole that is closed, and why the others have no test yet."""
    found = tomllib.loads(HOLES.read_text("utf-8"))
    return found["holes"], found["later"]


def claims(root: Path = TESTS) -> tuple[Claim, ...]:
    """Every test below `root` that names cases. Raises `ValueError` for one that cannot be read."""
    return tuple(
        claim
        for path in sorted(root.rglob("test_*.py"))
        for claim in claims_of(path.read_text("utf-8"), path.relative_to(root.parent).as_posix())
    )


def claims_of(source: str, name: str) -> Iterator[Claim]:
    """The same of one module's source."""
    for where, text in _docstrings(ast.parse(source), name):
        for paragraph in _paragraphs(text):
            found = _NAMED.match(paragraph)
            if found is not None:
                difference = _DIFFERENCE.search(found[2])
                cases = tuple(re.findall(_ID, found[1]))
                yield Claim(where, cases, difference[1] if difference else "")
            elif holes := _HOLES.match(paragraph):
                yield Claim(where, tuple(f"hole {n}" for n in re.findall(r"\d+", holes[1])))
            elif _BEGUN.match(paragraph):
                raise ValueError(f"{where}: cannot read the cases of {paragraph[:60]!r}")


def table() -> str:
    """Every case, group by group."""
    found = claims()
    parts = []
    for group, cases in known().items():
        rows = [f"### {group.capitalize()}", "", "| case | what holds | tests |"]
        rows.append("| --- | --- | --- |")
        rows += [_row(case, says, found) for case, says in cases.items()]
        parts.append("\n".join(rows))
    return "\n\n".join(parts)


def holes() -> str:
    """Every hole that is closed."""
    found = claims()
    rows = ["| hole | what holds | tests |", "| --- | --- | --- |"]
    rows += [_row(f"hole {n}", says, found) for n, says in known_holes()[0].items()]
    return "\n".join(rows)


def problems() -> list[str]:
    """Cases and holes that no test names, and what tests name that is not in the lists."""
    closed, later = known_holes()
    ids = [case for cases in known().values() for case in cases]
    ids += [f"hole {n}" for n in closed]
    found = claims()
    named = {case for claim in found for case in claim.cases}
    missing = [f"no test names {_called(case)}" for case in ids if case not in named]
    strange = []
    for claim in found:
        for case in claim.cases:
            if case.removeprefix("hole ") in later and case.startswith("hole "):
                strange.append(f"{claim.test} names {case}: move it out of `later` in holes.toml")
            elif case not in ids:
                strange.append(f"{claim.test} names {case}, which is not in {_list_of(case)}")
    return missing + strange


def _called(case: str) -> str:
    return case if case.startswith("hole ") else f"case {case}"


def _list_of(case: str) -> str:
    return "tools/holes.toml" if case.startswith("hole ") else "tools/cases.toml"


def _row(case: str, says: str, found: tuple[Claim, ...]) -> str:
    own = [claim for claim in found if case in claim.cases]
    differences = dict.fromkeys(claim.difference for claim in own if claim.difference)
    told = " ".join([says, *(f"*Different here: {_cell(one)}*" for one in differences)])
    tests = "<br>".join(f"`{test}`" for test in dict.fromkeys(claim.test for claim in own))
    return f"| {case.removeprefix('hole ')} | {told} | {tests} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _docstrings(tree: ast.Module, name: str) -> Iterator[tuple[str, str]]:
    nodes: list[tuple[str, ast.AST]] = [(name, tree)]
    while nodes:
        where, node = nodes.pop(0)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield where, ast.get_docstring(node) or ""
            inner = [
                (f"{where}::{child.name}", child)
                for child in ast.iter_child_nodes(node)
                if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            ]
            nodes = [*inner, *nodes]


def _paragraphs(text: str) -> Iterator[str]:
    """The docstring's paragraphs as single lines; a line that names cases begins one."""
    lines: list[str] = []
    for line in [*text.splitlines(), ""]:
        if lines and (not line.strip() or _BEGUN.match(line) or _HOLES.match(line)):
            yield " ".join(lines)
            lines = []
        if line.strip():
            lines.append(line.strip())

"""The table of reference cases: which test names which, and what the check refuses."""

from __future__ import annotations

import ast
from typing import Final

import pytest
from tools import cases
from tools.cases import Claim, claims_of

ON_EVERY_STORE: Final = {"drive", "stores"}
"""The fixtures of tests/store that stand for each kind of server in turn."""
OF_WORKERS: Final = {"S4", "S41"}
"""Cases of the store that say what a worker makes of it."""

NAMED = '''
"""Tests of one thing."""

def test_one():
    """What it is about.

    Case 001-5: stored before told.
    Cases 001-6, M1: the end of it, told over
    two lines. Difference: later, because it is
    cheaper.

    More words.
    """

class TestTwo:
    async def test_inner(self):
        """Case R1: inside."""

async def test_none():
    """Case by case, nothing is named. Hole 9 neither."""

def test_holes():
    """Holes 3, 7 and 12: lost replies,
    over two lines.
    Hole 4.
    Case R1: beside them.
    """
'''


def test_cases_are_read_from_docstrings_with_their_differences() -> None:
    assert list(claims_of(NAMED, "tests/test_x.py")) == [
        Claim("tests/test_x.py::test_one", ("001-5",)),
        Claim("tests/test_x.py::test_one", ("001-6", "M1"), "later, because it is cheaper."),
        Claim("tests/test_x.py::TestTwo::test_inner", ("R1",)),
        Claim("tests/test_x.py::test_holes", ("hole 3", "hole 7", "hole 12")),
        Claim("tests/test_x.py::test_holes", ("hole 4",)),
        Claim("tests/test_x.py::test_holes", ("R1",)),
    ]


@pytest.mark.parametrize("line", ["Case 001-5 holds.", "Cases 001-5 and 001-6: hold."])
def test_a_line_that_names_cases_in_another_form_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="cannot read the cases"):
        list(claims_of(f'def test_x():\n    """{line}"""\n', "tests/test_x.py"))


def test_the_check_names_what_has_no_test_and_what_is_not_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cases, "known", lambda: {"one": {"001-5": "x", "001-6": "y"}})
    monkeypatch.setattr(cases, "known_holes", lambda: ({"1": "x", "2": "y"}, {"9": "because"}))
    named = ("001-5", "Z9", "hole 1", "hole 9", "hole 70")
    monkeypatch.setattr(cases, "claims", lambda: (Claim("tests/test_x.py::test", named),))
    assert cases.problems() == [
        "no test names case 001-6",
        "no test names hole 2",
        "tests/test_x.py::test names Z9, which is not in tools/cases.toml",
        "tests/test_x.py::test names hole 9: move it out of `later` in holes.toml",
        "tests/test_x.py::test names hole 70, which is not in tools/holes.toml",
    ]


def test_every_hole_is_closed_or_says_why_it_is_open_still() -> None:
    closed, later = cases.known_holes()
    assert sorted(map(int, [*closed, *later])) == list(range(1, 65))


def test_a_difference_stands_beside_the_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "known", lambda: {"one": {"001-5": "It holds."}})
    monkeypatch.setattr(cases, "claims", lambda: (Claim("a.py::b", ("001-5",), "another order."),))
    assert cases.table().splitlines()[-1] == (
        "| 001-5 | It holds. *Different here: another order.* | `a.py::b` |"
    )


def test_every_case_of_the_store_runs_on_every_kind_of_store() -> None:
    """Case 003-1: with a test that takes its store from the one list of kinds."""
    of_stores = set(cases.known()["store"]) - OF_WORKERS - {"003-1"}
    run = {case for claim in cases.claims() if _on_every_store(claim.test) for case in claim.cases}
    assert of_stores <= run


def _on_every_store(test: str) -> bool:
    path, _, name = test.partition("::")
    tree = ast.parse((cases.ROOT / path).read_text("utf-8"))
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name
    ]
    return path.startswith("tests/store/") and any(
        ON_EVERY_STORE & {argument.arg for argument in node.args.args} for node in found
    )

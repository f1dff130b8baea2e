"""Write the generated sections of docs/; `--check` writes nothing and fails when one is stale.

A section stands between `<!-- NAME: begin, written by make format -->` and `<!-- NAME: end -->`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tools import cases, lifecycle, reference

DOCS: Final = Path(__file__).resolve().parents[1] / "docs"
SECTIONS: Final[Mapping[str, Mapping[str, Callable[[], str]]]] = {
    "protocol.md": {"scripts": reference.scripts},
    "operating.md": {"settings": reference.settings},
    "observing.md": {"metrics": reference.metrics},
    "lifecycle.md": {
        "diagram": lifecycle.diagram,
        "table": lifecycle.table,
        "recovery": reference.recovery,
    },
    "reference-cases.md": {"cases": cases.table},
    "holes.md": {"holes": cases.holes},
}


def written(text: str, name: str, body: str) -> str:
    """The page with one section written anew; raises `ValueError` when it has no place for it."""
    begin, end = f"<!-- {name}: begin, written by make format -->\n", f"<!-- {name}: end -->"
    marked = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if not marked.search(text):
        raise ValueError(f"there is no section {name!r}")
    return marked.sub(lambda _: f"{begin}\n{body.strip()}\n\n{end}", text)


def main(args: list[str]) -> int:
    """Write every page, or say which are stale."""
    stale = 0
    for page, sections in SECTIONS.items():
        path = DOCS / page
        text = fresh = path.read_text("utf-8")
        for name, write in sections.items():
            fresh = written(fresh, name, write())
        if fresh == text:
            continue
        if "--check" in args:
            sys.stderr.write(f"docs/{page} is stale: run make format\n")
            stale = 1
        else:
            path.write_text(fresh, "utf-8")
    if "--check" in args:
        wrong = cases.problems()
        sys.stderr.writelines(f"{problem}\n" for problem in wrong)
        return 1 if wrong else stale
    return stale


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

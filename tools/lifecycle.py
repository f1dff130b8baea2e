"""Write the diagram and the table of docs/lifecycle.md from the transition table, or check them.

python tools/lifecycle.py            write the page
python tools/lifecycle.py --check    change nothing; exit 1 when it is stale
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

from changeover_shared._state import COLUMNS, TRANSITIONS, Trigger, after
from changeover_shared._words import Status

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "lifecycle.md"
_MARKED: Final = re.compile(r"(<!-- generated: begin -->\n).*?(<!-- generated: end -->)", re.DOTALL)
LABELS: Final = 3
"""How many triggers an arrow names; the table has all."""


def diagram() -> str:
    """The statuses and what leads from one to another; what changes nothing is left out."""
    lines = ["```mermaid", "stateDiagram-v2"]
    for before in COLUMNS:
        for status in Status:
            named = [t.value for t in Trigger if status in after(before, t) and status != before]
            if named:
                more = f", +{len(named) - LABELS}" if len(named) > LABELS else ""
                start = before.value if before else "[*]"
                label = ", ".join(named[:LABELS]) + more
                lines.append(f"    {start} --> {status.value}: {label}")
    return "\n".join([*lines, "```"])


def table() -> str:
    """Every trigger in every status."""
    rows = [
        ["what happens", *(before.value if before else "unknown" for before in COLUMNS)],
        ["---"] * (len(COLUMNS) + 1),
        *([trigger.value, *(_cell(before, trigger) for before in COLUMNS)] for trigger in Trigger),
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(before: Status | None, trigger: Trigger) -> str:
    words = TRANSITIONS[before, trigger]
    reached = [status.value for status in Status if status.value in words]
    refused = sorted(f"`{word}`" for word in words if word.isupper())
    return ", ".join(reached + refused)


def page(text: str) -> str:
    """The page with its generated part written anew."""
    written = f"{diagram()}\n\n{table()}\n"
    found = _MARKED.sub(lambda marks: marks[1] + written + marks[2], text)
    if written not in found:
        raise SystemExit(f"{PAGE} has no place for the generated part")
    return found


def main(args: list[str]) -> int:
    """Write the page, or with `--check` say whether it is stale."""
    text = PAGE.read_text("utf-8")
    fresh = page(text)
    if args == ["--check"]:
        if fresh != text:
            sys.stderr.write(f"{PAGE.name} is stale: run python tools/lifecycle.py\n")
        return int(fresh != text)
    PAGE.write_text(fresh, "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

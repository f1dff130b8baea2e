"""Write the generated parts of docs/: scripts from their headers, settings from their model.

`--check` writes nothing and fails when a page is stale.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from itertools import takewhile
from pathlib import Path

from changeover_shared._scripts import NAMES, script
from changeover_shared._settings import Settings

DOCS = Path(__file__).resolve().parents[1] / "docs"
_MARKED = re.compile(r"(<!-- generated: begin -->\n).*?(<!-- generated: end -->)", re.DOTALL)


def scripts() -> str:
    """Every script's header, as it stands above the code."""
    parts = []
    for name in NAMES:
        comment = takewhile(lambda line: line.startswith("--"), script(name).body.splitlines())
        header = [line.removeprefix("--").removeprefix(" ").rstrip() for line in comment]
        parts.append(f"### `{name}`\n\n```text\n" + "\n".join(header) + "\n```\n")
    return "\n".join(parts)


def settings() -> str:
    """Every setting with its default and meaning."""
    rows = ["| variable | default | meaning |", "| --- | --- | --- |"]
    docs = _field_docs()
    for name, field in Settings.model_fields.items():
        rows.append(f"| `CHANGEOVER_{name.upper()}` | {_shown(field.default)} | {docs[name]} |")
    return "\n".join(rows) + "\n"


def _field_docs() -> dict[str, str]:
    """The strings below the fields of the settings model."""
    path = Path(sys.modules[Settings.__module__].__file__ or "")
    found = re.findall(
        r"^    (\w+): [^\n]*\n    \"\"\"(.*?)\"\"\"", path.read_text("utf-8"), re.M | re.S
    )
    return {name: " ".join(text.split()) for name, text in found}


def _shown(default: object) -> str:
    match default:
        case timedelta():
            seconds = default.total_seconds()
            for unit, span in (("h", 3600), ("m", 60), ("s", 1)):
                if seconds >= span and seconds % span == 0:
                    return f"`{seconds / span:.0f}{unit}`"
            return f"`{seconds * 1000:.0f}ms`"
        case int() if default >= 1024 and default % 1024 == 0:
            return f"`{default // 1024**2}MiB`" if default % 1024**2 == 0 else f"`{default}`"
        case None | "" | ():
            return "none"
        case _:
            return f"`{default}`"


def _filled(body: str, marked: re.Match[str]) -> str:
    return f"{marked[1]}\n{body}\n{marked[2]}"


PAGES: Mapping[str, Callable[[], str]] = {"protocol.md": scripts, "operating.md": settings}


def main() -> int:
    """Write the pages, or say which are stale."""
    stale = []
    for name, write in PAGES.items():
        path = DOCS / name
        text = path.read_text("utf-8")
        fresh = _MARKED.sub(partial(_filled, write()), text)
        if fresh != text and "--check" in sys.argv:
            stale.append(name)
        elif fresh != text:
            path.write_text(fresh, "utf-8")
    for name in stale:
        sys.stderr.write(f"docs/{name} is stale: run make format\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())

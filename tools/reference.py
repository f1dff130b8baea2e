"""References: scripts from their headers, settings from their model, recovery as decided."""

from __future__ import annotations

import re
import sys
from datetime import timedelta
from itertools import takewhile
from pathlib import Path

from changeover_shared._settings import Settings
from changeover_shared._store.scripts import NAMES, script
from changeover_worker._process.meters import Meters
from changeover_worker._turn.recovery import DECISIONS, Found


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


def recovery() -> str:
    """What a new holder does with the turn that it finds."""
    rows = ["| found | `resume` (the default) | `abort` |", "| --- | --- | --- |"]
    rows += [
        f"| {found} | {DECISIONS[found, 'resume']} | {DECISIONS[found, 'abort']} |"
        for found in Found
    ]
    return "\n".join(rows) + "\n"


def metrics() -> str:
    """Every metric of a worker with its labels and meaning."""
    rows = ["| metric | kind | labels | meaning |", "| --- | --- | --- | --- |"]
    for metric in sorted(Meters().described, key=lambda one: one.name):
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        rows.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.text} |")
    return "\n".join(rows) + "\n"

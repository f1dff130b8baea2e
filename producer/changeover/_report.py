"""What `doctor` found, as one object: the same in Python and in `--json`."""

from __future__ import annotations

from collections.abc import Sequence

from changeover_shared._items import Wire
from changeover_shared._server.check import Finding, Level


class Report(Wire):
    """A look at a server and the fleet on it; nothing was changed by it."""

    verdict: Level
    """The worst of the findings."""
    deep: bool = False
    """Whether every key and session was looked at."""
    findings: tuple[Finding, ...] = ()


def report_of(findings: Sequence[Finding], *, deep: bool) -> Report:
    """A report of findings in the order in which they were made."""
    levels = {one.level for one in findings}
    verdict: Level = "fail" if "fail" in levels else "warn" if "warn" in levels else "ok"
    return Report(verdict=verdict, deep=deep, findings=tuple(findings))

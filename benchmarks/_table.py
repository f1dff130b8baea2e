"""Numbers of several runs as one table: the median, and how far the runs lie apart."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence

from benchmarks._plan import Measurement, Row, Values

Runs = Mapping[str, Sequence[Values]]
"""Measurement name -> the numbers of each run."""

_HEADS = ("measurement", "what", "median", "", "spread", "goal")


def table(measurements: Iterable[Measurement], runs: Runs) -> str:
    """One line a row, in Markdown, padded so that a terminal shows it as well."""
    lines = [_HEADS]
    for one in measurements:
        for row in one.rows:
            numbers = _numbers(row, runs[one.name])
            lines.append((one.name, row.what, *numbers, row.goal))
    widths = [max(len(line[place]) for line in lines) for place in range(len(_HEADS))]
    written = [_line(line, widths) for line in lines]
    written.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(written)


def _numbers(row: Row, runs: Sequence[Values]) -> tuple[str, str, str]:
    values = sorted(run[row.name] for run in runs)
    spread = "" if len(values) == 1 else f"{shown(values[0])} - {shown(values[-1])}"
    return shown(statistics.median(values)), row.unit, spread


def shown(value: float) -> str:
    """A number with three digits that count, and a space between thousands."""
    if abs(value) >= 100:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        cell.rjust(width) if place == 2 else cell.ljust(width)
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return f"| {' | '.join(padded)} |"

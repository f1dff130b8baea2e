"""Alerts, dashboard and runbook: they name what exists, and each other."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from changeover.cli._main import build
from changeover_worker._process.meters import Meters

ROOT = Path(__file__).parents[2]
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text("utf-8")
RULES = yaml.safe_load((ROOT / "deploy" / "alerts.yml").read_text("utf-8"))
BOARD = json.loads((ROOT / "deploy" / "grafana.json").read_text("utf-8"))
ALERTS: list[dict[str, Any]] = [rule for group in RULES["groups"] for rule in group["rules"]]
TARGETS: list[str] = [one["expr"] for panel in BOARD["panels"] for one in panel["targets"]]

TARGET_LABELS = {"instance", "job"}
"""What Prometheus adds to every sample."""
_SELECTOR = re.compile(r"\b(changeover_\w+)(?:\{([^}]*)\})?")
_GROUPED = re.compile(r"\b(?:sum|max|min|avg|count) by \(([^)]*)\)")


def known() -> dict[str, set[str]]:
    """Every series that a worker may have, with its labels."""
    found: dict[str, set[str]] = {}
    for metric in Meters().described:
        labels = set(metric.labels)
        found[metric.name] = labels
        if metric.kind == "histogram":
            del found[metric.name]
            found |= {f"{metric.name}_{part}": labels for part in ("sum", "count")}
            found[f"{metric.name}_bucket"] = labels | {"le"}
    return found


def wrong(expression: str) -> Iterator[str]:
    """What an expression names and what is not there."""
    series = known()
    labels: set[str] = set()
    for name, selected in _SELECTOR.findall(expression):
        if name not in series:
            yield f"no metric {name}"
            continue
        labels |= series[name] | TARGET_LABELS
        for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selected):
            if label not in series[name] | TARGET_LABELS:
                yield f"{name} has no label {label}"
    if not expression.startswith("sum by (instance) (process_"):
        for grouped in _GROUPED.findall(expression):
            for label in re.split(r",\s*", grouped):
                if label not in labels:
                    yield f"nothing in {expression!r} has the label {label}"
    if expression.count("(") != expression.count(")"):
        yield f"parentheses of {expression!r}"


@pytest.mark.parametrize("alert", ALERTS, ids=[one["alert"] for one in ALERTS])
def test_an_alert_is_whole_and_names_metrics_that_exist(alert: dict[str, Any]) -> None:
    assert set(alert) <= {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"Changeover[A-Z]\w+", alert["alert"])
    assert re.fullmatch(r"\d+[smh]", alert.get("for", "1m"))
    assert alert["labels"]["severity"] in ("page", "ticket")
    assert set(alert["annotations"]) == {"summary", "runbook"}
    assert _SELECTOR.search(alert["expr"])
    assert list(wrong(alert["expr"])) == []
    used = set(re.findall(r"\$labels\.(\w+)", alert["annotations"]["summary"]))
    grouped = {label for one in _GROUPED.findall(alert["expr"]) for label in one.split(", ")}
    assert used <= grouped


def test_the_rules_are_one_file_of_groups_with_names_of_their_own() -> None:
    assert list(RULES) == ["groups"]
    assert all(set(group) == {"name", "rules"} for group in RULES["groups"])
    names = [one["alert"] for one in ALERTS]
    assert len(set(names)) == len(names)


def test_each_alert_has_an_entry_in_the_runbook_and_each_entry_an_alert() -> None:
    entries = re.findall(r"^## (\w+)$", RUNBOOK, re.M)
    assert entries == [one["alert"] for one in ALERTS]
    for alert in ALERTS:
        anchor = alert["annotations"]["runbook"]
        assert anchor == f"docs/runbook.md#{alert['alert'].lower()}"


def test_each_entry_says_what_it_means_where_to_look_and_what_to_do() -> None:
    for entry in re.split(r"^## ", RUNBOOK, flags=re.M)[1:]:
        parts = re.findall(r"^\*\*(\w+)\*\*: ", entry, re.M)
        assert parts == ["Means", "Look", "Do"], entry.partition("\n")[0]


def test_the_runbook_names_commands_metrics_and_pages_that_exist() -> None:
    commands = {one.name for one in build(None).registered_commands}
    for command in re.findall(r"`changeover ([a-z-]+)", RUNBOOK):
        assert command in commands, command
    series = known()
    for name in re.findall(r"\bchangeover_\w+", RUNBOOK):
        assert name in series, name
    for page, _ in re.findall(r"\]\(([^)#]+)(#[^)]*)?\)", RUNBOOK):
        assert (ROOT / "docs" / page).exists(), page


@pytest.mark.parametrize("expression", TARGETS)
def test_the_dashboard_asks_for_metrics_that_exist(expression: str) -> None:
    assert list(wrong(expression)) == []


def test_the_dashboard_lies_on_its_grid_without_overlaps() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert at["x"] + at["w"] <= 24 and not cells & taken, panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(set(ids)) == len(ids)


def test_what_is_wrong_in_an_expression_is_found() -> None:
    assert list(wrong("max(changeover_queue_readiness)")) == [
        "no metric changeover_queue_readiness"
    ]
    assert list(wrong('sum(changeover_turns_total{queue="a"})')) == [
        "changeover_turns_total has no label queue"
    ]
    assert list(wrong("max by (agent) (changeover_queue_ready)"))
    assert list(wrong("sum(changeover_turn_seconds)")) == ["no metric changeover_turn_seconds"]


def test_what_is_deployed_asks_for_metrics_that_exist() -> None:
    series = known()
    for path in (ROOT / "deploy").rglob("*.y*ml"):
        for name in re.findall(r"\bchangeover_\w+", path.read_text("utf-8")):
            assert name in series, f"{path.name} asks for {name}"

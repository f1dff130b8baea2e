"""`make conformance`: every test of the scripts on every target, and a line for each target.

Exits 1 when a test fails, when a target is missing, and when a test is not run on one of them
without a reason in `tests/support/left_out.py`.
"""

from __future__ import annotations

import sys

import pytest

from tests.conformance.counting import Counting

SUITE = "tests/store"


def main() -> int:
    """Run the suite; the lines come last."""
    counting = Counting()
    status = pytest.main(["--quiet", "--no-header", SUITE], [counting])
    wrong = counting.wrong()
    sys.stdout.writelines(f"{line}\n" for line in ["", *counting.lines(), *wrong])
    return 1 if status or wrong else 0


if __name__ == "__main__":
    sys.exit(main())

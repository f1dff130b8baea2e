"""What holds for every test."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.support.targets import Targets, running_targets

# A job that a shell starts in the background inherits ignored signals of the keyboard, and so would
# every process that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN:
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
# A run that is told to end, as by `timeout`, takes the servers along that it has started.
signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.fixture(scope="session")
def targets() -> Iterator[Targets]:
    """What the store is tested on, each started with the first test that asks for it."""
    with running_targets() as found:
        yield found

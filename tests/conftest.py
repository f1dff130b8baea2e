"""What holds for every test."""

from __future__ import annotations

import signal

# A job that a shell starts in the background inherits an ignored Ctrl-C, and so would every process
# that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

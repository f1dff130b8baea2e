"""What a worker is called when nobody names it."""

from __future__ import annotations

import os
import re
import socket

_LONGEST = 60
"""Leaves room for the number of a supervised process."""


def default_name() -> str:
    """`w<pid>@<host>`, with what a name may not hold left out."""
    host = re.sub(r"[^A-Za-z0-9._-]", "", socket.gethostname().partition(".")[0])
    return f"w{os.getpid()}@{host}"[:_LONGEST]

"""What a command leaves behind of a bug: a file that can be attached to a report."""

from __future__ import annotations

import sys
import tempfile
import traceback
from importlib.metadata import version


def dump(error: BaseException) -> str:
    """Write what is known of `error` into a new temporary file; its path."""
    with tempfile.NamedTemporaryFile(
        "w", prefix="changeover-bug-", suffix=".txt", delete=False, encoding="utf-8"
    ) as out:
        out.write(f"changeover {version('changeover')}, Python {sys.version}\n\n")
        out.writelines(traceback.format_exception(error))
    return out.name

"""Golden files: what commands print and workers log, word for word, but for what changes each time.

`make golden` writes them anew; a change of one is a change of what people and programs read, and
belongs into the commit that makes it.
"""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import Final

GOLDEN: Final = Path(__file__).parents[1] / "golden"
WRITE: Final = "CHANGEOVER_GOLDEN"

_RULES: Final = (
    (re.escape(socket.gethostname()), "HOST"),
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?", "TIME"),
    (r"\d\d:\d\d:\d\d", "CLOCK"),
    (r"\b[0-9a-f]{8}\b", "BOOT"),
    (r"127\.0\.0\.1:\d+", "127.0.0.1:PORT"),
    (r'("pid": ?|pid )\d+', r"\1PID"),
    (r"\b1[0-9]{12}\b", "MILLISECONDS"),
    (r'("\w*(?:ms|_s|bytes|skew)(?:_ago)?": ?)-?\d+(\.\d+)?', r"\1N"),
    (r'("s": ?)-?\d+(\.\d+)?', r"\1N"),
    (r"\bs \d+\.\d+", "s N"),
    (r'("redis": ?")\d+\.\d+(\.\d+)?', r"\1VERSION"),
    (r"\b(s_\d+_\d+_)[0-9a-f]{6}\b", r"\1ID"),
    (r"\b(redis|valkey|Redis|Valkey) \d+\.\d+(\.\d+)?", r"\1 VERSION"),
    (r"-?\b\d+(\.\d+)? (ms|s|m|h|d)\b", "SPAN"),
    (r"-?\b\d+(\.\d+)? (B|KiB|MiB|GiB|bytes)\b", "SIZE"),
    (r" {3,}", "  "),
    (r" +$", ""),
)


def settled(text: str) -> str:
    """The text without what changes each time."""
    for pattern, instead in _RULES:
        text = re.sub(pattern, instead, text, flags=re.MULTILINE)
    return text


def compare(name: str, text: str) -> None:
    """Compare with a golden file, or write it if that was asked for."""
    path, found = GOLDEN / name, settled(text)
    if os.environ.get(WRITE):
        path.write_text(found, "utf-8")
        return
    expected = path.read_text("utf-8") if path.exists() else ""
    assert found == expected, f"tests/golden/{name} is not what is said; see make golden"

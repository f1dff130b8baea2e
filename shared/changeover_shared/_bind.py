"""Where a process listens: `host:port`, `unix:PATH`, or nowhere."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from changeover_shared._errors import Invalid

OFF: Final = "off"
_ADDRESS = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9._-]*)):(?P<port>[0-9]+)")
_UNIX = "unix:"
_LONGEST_PATH: Final = 100
"""The kernel takes 107 bytes, and fewer elsewhere."""


@dataclass(frozen=True, slots=True)
class Bind:
    """An address to listen on; a unix socket if it has a path."""

    host: str = ""
    """'' for all of the machine's addresses."""
    port: int = 0
    """0 for any that is free."""
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return f"{_UNIX}{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def read_bind(text: str, *, field: str) -> Bind | None:
    """Read an address; None for `off`. Raises `Invalid`."""
    if text == OFF:
        return None
    if text.startswith(_UNIX):
        path = text.removeprefix(_UNIX)
        if path and "\0" not in path and len(path.encode()) <= _LONGEST_PATH:
            return Bind(path=path)
        raise Invalid(field=field, reason=f"the path of a socket has 1 to {_LONGEST_PATH} bytes")
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > 65535:
        reason = f"{text!r:.80} is no address; write 0.0.0.0:8081, [::1]:8081, unix:PATH or off"
        raise Invalid(field=field, reason=reason)
    return Bind(found["six"] or found["host"] or "", int(found["port"]))

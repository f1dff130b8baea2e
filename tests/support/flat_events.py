"""Events as a program reads them that has nothing but the flat JSON of `--json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from changeover_shared._events import _KNOWN, Event


def event_of(flat: Mapping[str, Any]) -> Event:
    """Read a flat event; an unknown type is a plain one."""
    return _KNOWN.get(flat.get("type", ""), Event).model_validate(flat)

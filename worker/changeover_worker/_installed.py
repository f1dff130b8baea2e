"""Imported first: says which extra is missing before an import fails with a stranger's name."""

from __future__ import annotations

from importlib.util import find_spec

if any(find_spec(name) is None for name in ("docstring_parser", "structlog")):
    raise ImportError("changeover_worker needs: pip install 'changeover[worker]'")

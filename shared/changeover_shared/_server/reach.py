"""Make sure that a server is there, whatever kind of URL names it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from changeover_shared._server.url import Target, parse_url

if TYPE_CHECKING:
    from changeover_shared._server.embedded import Embedded


@dataclass(frozen=True, slots=True)
class Reached:
    """A server that is there, and our share of it when it is an embedded one."""

    target: Target
    embedded: Embedded | None = None

    def close(self) -> None:
        """Leave an embedded server; the last one out stops it. May be repeated."""
        if self.embedded is not None:
            self.embedded.close()


def reach(url: str) -> Reached:
    """Make sure that the server is there: an embedded one is started or attached to.

    Blocks for as long as an embedded server starts. Raises `Invalid`, `ExtraMissing`, and
    `ServerUnfit` when it does not start; nothing is sent to a server that is not embedded.
    """
    target = parse_url(url)
    if target.scheme != "embedded":
        return Reached(target)
    # Imported here because it needs file locks that not every platform has.
    from changeover_shared._server.embedded import attach

    embedded = attach(Path(target.path))
    return Reached(parse_url(embedded.url), embedded)

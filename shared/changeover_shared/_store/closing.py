"""What both executors say once they are closed."""

from __future__ import annotations

from changeover_shared._errors import Invalid


def refuse_if(closed: bool) -> None:
    """Raise `Invalid` once the client is closed: no retry takes that for an outage."""
    if closed:
        raise Invalid(
            field="client",
            reason="it is closed; open another one",
            unchanged="nothing more was sent",
        )

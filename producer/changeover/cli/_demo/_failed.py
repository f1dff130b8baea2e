"""What ends a demonstration early."""

from __future__ import annotations

from changeover_shared._errors import ChangeoverError


class DemoFailed(ChangeoverError):
    """The demonstration did not come to its end."""

    code = "demo_failed"

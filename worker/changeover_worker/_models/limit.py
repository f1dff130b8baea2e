"""How often a model may be asked, as its provider allows."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from changeover_shared._errors import Invalid

MOST: Final = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class Limit:
    """What a provider allows, over all workers of the fleet; None: any number. Raises `Invalid`.

    A `Limit()` without numbers still has the whole fleet honour the provider's Retry-After.
    """

    requests_per_minute: int | None = None
    """Never more in any minute; a twelfth of them may go at once, the others are spread."""
    tokens_per_minute: int | None = None
    """Input and output. Estimated before a request, corrected after it: kept on average."""
    concurrency: int | None = None
    """How many requests run at once."""
    tenant_requests_per_minute: int | None = None
    """The same for each tenant; a session of no tenant is limited by the others alone."""
    tenant_tokens_per_minute: int | None = None
    tenant_concurrency: int | None = None
    name: str = ""
    """What is counted together: models whose limits have one name, in whatever app of the fleet,
    share what it allows. The model's own name if empty."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise _invalid(f"name is text, not {self.name!r:.80}")
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name == "name" or value is None:
                continue
            if type(value) is not int or not 1 <= value <= MOST:
                raise _invalid(f"{one.name} is a whole number from 1 to {MOST}, not {value!r:.80}")

    @property
    def of_tenant(self) -> tuple[int, int, int]:
        """Requests and tokens of one tenant a minute, and how many at once; 0: any number."""
        return (
            self.tenant_requests_per_minute or 0,
            self.tenant_tokens_per_minute or 0,
            self.tenant_concurrency or 0,
        )

    @property
    def of_all(self) -> tuple[int, int, int]:
        """The same of everybody."""
        return self.requests_per_minute or 0, self.tokens_per_minute or 0, self.concurrency or 0


def _invalid(reason: str) -> Invalid:
    return Invalid(field="limit", reason=reason, unchanged="nothing was started")

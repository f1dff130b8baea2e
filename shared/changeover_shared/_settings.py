"""Every setting: an environment variable `CHANGEOVER_<NAME>` or a flag, and its default."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from difflib import get_close_matches
from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from changeover_shared import _identifiers
from changeover_shared._bind import OFF, read_bind
from changeover_shared._errors import Invalid
from changeover_shared._units import Keep, Size, Span

Durability = Literal["memory", "fsync", "replica"]
"""What a write waits for before it counts."""

_NOT_STARTED: Final = "nothing was started"


class Settings(BaseSettings):
    """What a process was told; limits that hold for the fleet are written when it is created."""

    model_config = SettingsConfigDict(
        env_prefix="CHANGEOVER_", frozen=True, extra="ignore", env_ignore_empty=True
    )

    redis_url: str | None = Field(default=None)
    """Where Redis is; `REDIS_URL` is read when this is not set."""
    prefix: str = "co"
    """What every key starts with: two fleets on one server have two prefixes."""
    partitions: int = Field(default=64, ge=1, le=4096)
    """How many partitions a new fleet gets; fixed from then on."""
    tenant: str = ""
    """Whose sessions a producer creates: tenants share a queue fairly."""
    agent: str = "assistant"
    """The agent of a session whose first submission names none."""

    max_message: Size = Field(default=1024**2, ge=1)
    """The largest message, in bytes of UTF-8."""
    max_inbox: int = Field(default=64, ge=1, le=4096)
    """How many submissions may wait in one session."""
    max_inbox_bytes: Size = Field(default=8 * 1024**2, ge=1)
    """How many bytes of submissions may wait in one session."""
    dedup_window: Span = timedelta(hours=24)
    """How long a settled submission's id is remembered."""
    journal_events: int = Field(default=10_000, ge=100)
    """How many events a session keeps; the newest turn stays whole, but above so many events in
    one turn its streamed text is left out."""
    turns_kept: int = Field(default=1000, ge=1)
    """How many turn records a session keeps, and no older transcript than theirs once a
    compaction has replaced it."""

    closed_ttl: Keep = timedelta(days=30)
    """After how long `changeover purge` deletes a closed session, if it is not told otherwise;
    `never`: not at all."""
    idle_ttl: Keep = None
    """The same for sessions that have nothing to do; never by default."""

    durability: Durability = "memory"
    """What an accepted submission, and a tool that is not pure, wait for: nothing more than the
    primary's memory, its disk (`fsync`), or its replicas (`replica`)."""
    durability_timeout: Span = Field(default=timedelta(milliseconds=500), le=timedelta(seconds=5))
    """How long to wait for the disk or the replicas before saying that they did not confirm; at
    most 5 s, so that the wait ends before its connection counts as lost."""
    durability_replicas: int = Field(default=1, ge=1, le=16)
    """How many replicas must confirm: all that may be promoted."""
    redis_headroom: float = Field(default=0.9, gt=0.0, le=1.0)
    """The share of Redis's maxmemory above which messages are refused, before Redis refuses."""
    payload_keys: Annotated[tuple[str, ...], NoDecode] = ()
    """Files of keys that encrypt what Redis holds of conversations, comma-separated; the first
    one encrypts, all of them decrypt."""

    lease: Span = timedelta(seconds=30)
    """How long a grant lasts without renewal."""
    renew: Span = timedelta(seconds=10)
    """How often a worker renews; at most a third of `lease`."""
    margin: Span = timedelta(seconds=3)
    """How long before the end of a lease its worker stops by itself."""
    loop_lag_limit: Span = timedelta(seconds=5)
    """How long a worker's event loop may be blocked before the worker counts as not live."""
    drain_grace: Span = timedelta(seconds=25)
    """How long a drain waits for step boundaries before it cancels."""
    takeover_attempts: int = Field(default=5, ge=1)
    """After so many grants without progress a session is quarantined."""
    no_progress_timeout: Keep = timedelta(minutes=15)
    """For so long a session may be held without progress, all grants together, before it is
    quarantined; a step that may take longer has its own time. `never`: only attempts count."""
    max_steps: int = Field(default=256, ge=1)
    """How many model steps one turn may take."""
    step_timeout: Span = timedelta(minutes=10)
    """How long one model step may take; tools add their own time-outs."""
    model_retries: int = Field(default=5, ge=0, le=100)
    """How often a model that failed is asked again, if the failure may pass; 0 never."""

    app: str | None = None
    """The app that `changeover worker` runs, as `module:attribute`."""
    queues: Annotated[tuple[str, ...], NoDecode] = ()
    """Which queues a worker serves, comma-separated; default: those of its app's agents."""
    tenant_concurrency: int | None = Field(default=None, ge=1, le=10_000)
    """How many sessions of one tenant run at once in the whole fleet; all workers should be told
    the same."""
    queue_concurrency: int | None = Field(default=None, ge=1, le=10_000)
    """The same for the sessions of one queue."""
    tenant_inbox: int | None = Field(default=None, ge=1)
    """How many submissions may wait in all sessions of one tenant before the next are `Busy`; all
    workers should be told the same."""
    fleet_inbox: int | None = Field(default=None, ge=1)
    """The same for all sessions of the fleet."""
    concurrency: int = Field(default=200, ge=1, le=100_000)
    """How many sessions one worker process holds at once."""
    processes: int = Field(default=1, ge=1, le=256)
    """How many worker processes one `changeover worker` supervises."""
    worker_name: str | None = None
    """A worker's name; default: `w<pid>@<host>`."""
    build: str = ""
    """What release of the application a worker runs, for people."""

    health_bind: str = OFF
    """Where a worker answers `/livez`, `/readyz`, `/status` and `/metrics`: `0.0.0.0:8081`,
    `unix:PATH`, or `off`. With more than one process their parent answers for all of them."""

    log_format: Literal["auto", "text", "json"] = "auto"
    """`auto`: text on a terminal, else JSON."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe log event that is written."""

    @field_validator("queues", "payload_keys", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("queues")
    @classmethod
    def _queue_names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_identifiers.name(queue, field="queues") for queue in value)

    @field_validator("prefix", "agent")
    @classmethod
    def _names(cls, value: str, info: ValidationInfo) -> str:
        return _identifiers.name(value, field=info.field_name or "settings")

    @field_validator("health_bind")
    @classmethod
    def _health_bind(cls, value: str) -> str:
        read_bind(value, field="health_bind")
        return value

    @field_validator("tenant")
    @classmethod
    def _tenant(cls, value: str) -> str:
        return _identifiers.name(value, field="tenant") if value else ""

    @model_validator(mode="after")
    def _lease_outlives_renewals(self) -> Settings:
        if self.lease < 3 * self.renew:
            raise ValueError(f"lease {self.lease} must be at least three times renew {self.renew}")
        if self.margin >= self.lease - self.renew:
            raise ValueError(f"margin {self.margin} leaves no time to renew a lease {self.lease}")
        return self


def read_settings(**given: Any) -> Settings:
    """Read the environment; `given` wins over it, None means not given.

    Raises `Invalid` naming the setting that is wrong.
    """
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        where = "_".join(str(part) for part in first["loc"]).upper()
        field = f"CHANGEOVER_{where}" if where else "settings"
        raise Invalid(field=field, reason=_reason(first), unchanged=_NOT_STARTED) from error


def misspelt(environment: Iterable[str]) -> dict[str, str]:
    """Variables that no setting has and that look like one that a setting has, with that one."""
    known = [f"CHANGEOVER_{name.upper()}" for name in Settings.model_fields]
    found = {}
    for name in sorted(environment):
        if name.startswith("CHANGEOVER_") and name not in known:
            for meant in get_close_matches(name, known, n=1, cutoff=0.8):
                found[name] = meant
    return found


def _reason(found: ErrorDetails) -> str:
    cause = found.get("ctx", {}).get("error")
    # The text of an `Invalid` names a field and what was not done; the caller says both itself.
    return (
        cause.reason if isinstance(cause, Invalid) else found["msg"].removeprefix("Value error, ")
    )

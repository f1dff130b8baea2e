"""The connection to a provider: its SDK, its key, its HTTP client."""

from __future__ import annotations

from datetime import timedelta
from importlib import import_module
from typing import Any, Final

from changeover_shared._errors import ExtraMissing, Invalid

PLACEHOLDER: Final = "unused"
"""Sent as the key to servers that were given an address and no key."""

_STREAMS: Final = 4096
_KEPT_IDLE: Final = 256
_CONNECT_S: Final = 10.0


def load_sdk(extra: str, *, what: str) -> Any:
    """Import a provider's SDK; raises `ExtraMissing` if it is not installed."""
    try:
        return import_module(extra)
    except ModuleNotFoundError as missing:
        if missing.name != extra:
            raise
        raise ExtraMissing(what=what, extra=extra) from None


def connection(sdk: Any, silence: timedelta) -> dict[str, Any]:
    """The arguments of an SDK's client for all sessions of a worker.

    Retries belong to the worker. `silence` is the read timeout; the SDKs' own limit of
    connections is below the number of sessions that a worker may hold.
    """
    import httpx2  # comes with either SDK, and not without

    seconds = silence.total_seconds()
    timeout = httpx2.Timeout(seconds, connect=min(seconds, _CONNECT_S))
    limits = httpx2.Limits(max_connections=_STREAMS, max_keepalive_connections=_KEPT_IDLE)
    return {
        "max_retries": 0,
        "timeout": timeout,
        "http_client": sdk.DefaultAsyncHttpxClient(timeout=timeout, limits=limits),
    }


def checked_name(model: str) -> str:
    """Return a provider's name of a model; raises `Invalid` if it is blank."""
    if not model.strip():
        raise Invalid(field="model", reason="a model needs a name, for example gpt-5-mini")
    return model


def checked_address(base_url: str | None) -> str | None:
    """Return a server's address; raises `Invalid` unless it is http(s) without a user in it."""
    if base_url is None:
        return None
    scheme, found, rest = base_url.partition("://")
    if scheme not in ("http", "https") or not found or not rest.strip("/"):
        raise Invalid(field="base_url", reason=f"{base_url!r} is no http or https address")
    if "@" in rest.split("/")[0]:
        raise Invalid(field="base_url", reason="holds a user or password; pass api_key= instead")
    return base_url.rstrip("/")

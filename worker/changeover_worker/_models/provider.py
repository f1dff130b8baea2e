"""The connection to a provider: its SDK, its key, its HTTP client."""

from __future__ import annotations

import os
from datetime import timedelta
from importlib import import_module
from typing import Any, Final

from changeover_shared._errors import ExtraMissing, Invalid, KeyMissing
from changeover_shared._units import Duration, duration
from changeover_worker._models.failures import failure

_PLACEHOLDER: Final = "unused"
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


class Account:
    """One provider as one model reaches it: its address, its key, one client for all sessions."""

    def __init__(
        self,
        provider: str,
        model: str,
        *,
        sdk: Any,
        client: str,
        base_url: str | None,
        api_key: str | None,
        timeout: Duration,
    ) -> None:
        """`client` is the name of the SDK's client; the key and the address that were not given
        are those of the environment. Raises `Invalid`."""
        self.sdk = sdk
        self.address = _checked_address(base_url)
        self.provider = f"{provider}@{self.address}" if self.address else provider
        self.model = _checked_name(model)
        self._variables = provider.upper()
        self._kind = client
        self._given_key = api_key
        self._silence = duration(timeout, field="timeout")
        self._client: Any = None

    @property
    def name(self) -> str:
        """`PROVIDER:NAME`, or `PROVIDER@URL:NAME` for a compatible server."""
        return f"{self.provider}:{self.model}"

    def check(self) -> None:
        """Raise `KeyMissing` if there is no API key."""
        if not self._found_key():
            raise KeyMissing(what=self.name, variable=self._key_variable)

    def key(self) -> str:
        """The API key as it is now; raises `ModelError` if there is none."""
        key = self._found_key()
        if not key:
            said = f"has no API key: set {self._key_variable} or pass api_key="
            raise failure(self.name, "provider_auth", said)
        return key

    def client(self, key: str) -> Any:
        """The SDK's client; the first call decides with which key."""
        if self._client is None:
            make = getattr(self.sdk, self._kind)
            self._client = make(
                api_key=key, base_url=self.address, **_connection(self.sdk, self._silence)
            )
        return self._client

    async def aclose(self) -> None:
        """Close the connections; the next request opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    @property
    def _key_variable(self) -> str:
        return f"{self._variables}_API_KEY"

    def _found_key(self) -> str:
        key = self._given_key or os.environ.get(self._key_variable, "")
        elsewhere = self.address or os.environ.get(f"{self._variables}_BASE_URL")
        return key.strip() or (_PLACEHOLDER if elsewhere else "")


def _connection(sdk: Any, silence: timedelta) -> dict[str, Any]:
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


def _checked_name(model: str) -> str:
    """Return a provider's name of a model; raises `Invalid` if it is blank."""
    if not model.strip():
        raise Invalid(field="model", reason="a model needs a name, for example gpt-5-mini")
    return model


def _checked_address(base_url: str | None) -> str | None:
    """Return a server's address; raises `Invalid` unless it is http(s) without a user in it."""
    if base_url is None:
        return None
    scheme, found, rest = base_url.partition("://")
    if scheme not in ("http", "https") or not found or not rest.strip("/"):
        raise Invalid(field="base_url", reason=f"{base_url!r} is no http or https address")
    if "@" in rest.split("/")[0]:
        raise Invalid(field="base_url", reason="holds a user or password; pass api_key= instead")
    return base_url.rstrip("/")

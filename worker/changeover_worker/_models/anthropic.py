"""Anthropic's messages, through the official SDK."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from changeover_shared._errors import Invalid, KeyMissing
from changeover_shared._units import Duration, duration
from changeover_worker._models import anthropic_messages
from changeover_worker._models.failures import failure
from changeover_worker._models.model import Emit, ModelRequest, ModelResponse
from changeover_worker._models.provider import (
    PLACEHOLDER,
    checked_address,
    checked_name,
    connection,
    load_sdk,
)
from changeover_worker._models.stream import Ear


class AnthropicModel:
    """A model of Anthropic, or of a compatible server at `base_url`.

    Without `api_key` the key is `ANTHROPIC_API_KEY`; a compatible server gets a placeholder if
    that is not set. `max_tokens` bounds one answer, reasoning included. `timeout` is the longest
    silence between two bytes. `options` are further fields of the request, sent as they are.
    Raises `ExtraMissing` without the extra `anthropic`. One instance serves all sessions of a
    worker.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        max_tokens: int = 16_384,
        timeout: Duration = "5m",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._sdk = load_sdk("anthropic", what="AnthropicModel")
        if max_tokens < 1:
            raise Invalid(field="max_tokens", reason=f"{max_tokens} leaves no room for an answer")
        self._model = checked_name(model)
        self._address = checked_address(base_url)
        self._max_tokens = max_tokens
        self._silence = duration(timeout, field="timeout")
        self._options = dict(options or {})
        self._given_key = api_key
        self._provider = f"anthropic@{self._address}" if self._address else "anthropic"
        self._client: Any = None

    @property
    def name(self) -> str:
        """`anthropic:NAME`, or `anthropic@URL:NAME` for a compatible server."""
        return f"{self._provider}:{self._model}"

    def __repr__(self) -> str:
        return f"AnthropicModel({self.name!r})"

    def check(self) -> None:
        """Raise `KeyMissing` if there is no API key."""
        if not self._key():
            raise KeyMissing(what=self.name, variable="ANTHROPIC_API_KEY")

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Ask once, without retries; see `Model.respond`."""
        key = self._key()
        if not key:
            raise failure(
                self.name, "provider_auth", "has no API key: set ANTHROPIC_API_KEY or pass api_key="
            )
        assembly = anthropic_messages.Assembly(self.name, self._provider, request)

        async def ask() -> Any:
            return await self._connected(key).messages.create(
                model=self._model,
                max_tokens=self._max_tokens,
                stream=True,
                extra_body=self._options or None,
                **anthropic_messages.body(request, self._provider),
            )

        return await Ear(self.name, self._sdk, key).listen(ask, assembly, emit)

    async def aclose(self) -> None:
        """Close the connections; the next request opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def _key(self) -> str:
        key = self._given_key or os.environ.get("ANTHROPIC_API_KEY", "")
        elsewhere = self._address or os.environ.get("ANTHROPIC_BASE_URL")
        return key.strip() or (PLACEHOLDER if elsewhere else "")

    def _connected(self, key: str) -> Any:
        if self._client is None:
            self._client = self._sdk.AsyncAnthropic(
                api_key=key,
                base_url=self._address,
                **connection(self._sdk, self._silence),
            )
        return self._client

"""OpenAI and servers that speak like it, through the official SDK."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal

from changeover_shared._errors import KeyMissing
from changeover_shared._units import Duration, duration
from changeover_worker._models import openai_chat, openai_responses
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


class OpenAIModel:
    """A model of OpenAI, or of a compatible server at `base_url`.

    `api` is `responses` for OpenAI itself and `chat` (chat completions) for a compatible server,
    unless said. Without `api_key` the key is `OPENAI_API_KEY`; a compatible server gets a
    placeholder if that is not set. `timeout` is the longest silence between two bytes. `options`
    are further fields of the request, sent as they are: `{"reasoning": {"effort": "low"}}`.
    Raises `ExtraMissing` without the extra `openai`. One instance serves all sessions of a worker.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        api: Literal["responses", "chat"] | None = None,
        timeout: Duration = "5m",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._sdk = load_sdk("openai", what="OpenAIModel")
        self._model = checked_name(model)
        self._address = checked_address(base_url)
        self._silence = duration(timeout, field="timeout")
        self._options = dict(options or {})
        self._given_key = api_key
        self._dialect = openai_chat if self._speaks(api) == "chat" else openai_responses
        self._provider = f"openai@{self._address}" if self._address else "openai"
        self._client: Any = None

    def _speaks(self, api: str | None) -> str:
        return api or ("chat" if self._address else "responses")

    @property
    def name(self) -> str:
        """`openai:NAME`, or `openai@URL:NAME` for a compatible server."""
        return f"{self._provider}:{self._model}"

    def __repr__(self) -> str:
        return f"OpenAIModel({self.name!r})"

    def check(self) -> None:
        """Raise `KeyMissing` if there is no API key."""
        if not self._key():
            raise KeyMissing(what=self.name, variable="OPENAI_API_KEY")

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Ask once, without retries; see `Model.respond`."""
        key = self._key()
        if not key:
            raise failure(
                self.name, "provider_auth", "has no API key: set OPENAI_API_KEY or pass api_key="
            )
        assembly = self._dialect.Assembly(self.name, self._provider, request)

        async def ask() -> Any:
            body = self._dialect.body(request, self._provider)
            extra = self._options or None
            create = self._dialect.create(self._connected(key))
            return await create(model=self._model, stream=True, extra_body=extra, **body)

        return await Ear(self.name, self._sdk, key).listen(ask, assembly, emit)

    async def aclose(self) -> None:
        """Close the connections; the next request opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def _key(self) -> str:
        key = self._given_key or os.environ.get("OPENAI_API_KEY", "")
        elsewhere = self._address or os.environ.get("OPENAI_BASE_URL")
        return key.strip() or (PLACEHOLDER if elsewhere else "")

    def _connected(self, key: str) -> Any:
        if self._client is None:
            self._client = self._sdk.AsyncOpenAI(
                api_key=key,
                base_url=self._address,
                **connection(self._sdk, self._silence),
            )
        return self._client

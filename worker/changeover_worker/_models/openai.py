"""OpenAI and servers that speak like it, through the official SDK."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from changeover_shared._units import Duration
from changeover_worker._models import openai_chat, openai_responses
from changeover_worker._models.model import Emit, ModelRequest, ModelResponse
from changeover_worker._models.provider import Account, load_sdk
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
        self._account = Account(
            "openai",
            model,
            sdk=load_sdk("openai", what="OpenAIModel"),
            client="AsyncOpenAI",
            base_url=base_url,
            api_key=api_key,
            timeout=timeout,
        )
        self._options = dict(options or {})
        chat = (api or ("chat" if self._account.address else "responses")) == "chat"
        self._dialect = openai_chat if chat else openai_responses

    @property
    def name(self) -> str:
        """`openai:NAME`, or `openai@URL:NAME` for a compatible server."""
        return self._account.name

    def __repr__(self) -> str:
        return f"OpenAIModel({self.name!r})"

    def check(self) -> None:
        """Raise `KeyMissing` if there is no API key."""
        self._account.check()

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Ask once, without retries; see `Model.respond`."""
        account, key = self._account, self._account.key()
        assembly = self._dialect.Assembly(self.name, account.provider, request)

        async def ask() -> Any:
            body = self._dialect.body(request, account.provider)
            extra = self._options or None
            create = self._dialect.create(account.client(key))
            return await create(model=account.model, stream=True, extra_body=extra, **body)

        return await Ear(self.name, account.sdk, key).listen(ask, assembly, emit)

    async def aclose(self) -> None:
        """Close the connections; the next request opens new ones."""
        await self._account.aclose()

"""Anthropic's messages, through the official SDK."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from changeover_shared._errors import Invalid
from changeover_shared._units import Duration
from changeover_worker._models import anthropic_events, anthropic_messages
from changeover_worker._models.failures import failure
from changeover_worker._models.model import Emit, ModelRequest, ModelResponse
from changeover_worker._models.provider import Account, load_sdk
from changeover_worker._models.stream import Ear

PAUSES: Final = 10
"""So often one answer may pause. A pause left in a conversation would be refused by the next
request, so an answer that pauses on is dropped whole."""


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
        if max_tokens < 1:
            raise Invalid(field="max_tokens", reason=f"{max_tokens} leaves no room for an answer")
        self._account = Account(
            "anthropic",
            model,
            sdk=load_sdk("anthropic", what="AnthropicModel"),
            client="AsyncAnthropic",
            base_url=base_url,
            api_key=api_key,
            timeout=timeout,
        )
        self._max_tokens = max_tokens
        self._options = dict(options or {})

    @property
    def name(self) -> str:
        """`anthropic:NAME`, or `anthropic@URL:NAME` for a compatible server."""
        return self._account.name

    def __repr__(self) -> str:
        return f"AnthropicModel({self.name!r})"

    def check(self) -> None:
        """Raise `KeyMissing` if there is no API key."""
        self._account.check()

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Ask once, without retries; see `Model.respond`.

        An answer that the provider pauses, while its own tools run long, goes on at once in
        further requests, and is one answer. After ten of them it is a `ModelError`.
        """
        account, key = self._account, self._account.key()
        ear = Ear(self.name, account.sdk, key)
        assembly = anthropic_events.Assembly(self.name, account.provider, request)

        async def ask() -> Any:
            return await account.client(key).messages.create(
                model=account.model,
                max_tokens=self._max_tokens,
                stream=True,
                extra_body=self._extra(assembly.container),
                **anthropic_messages.body(asked, account.provider),
            )

        asked = request
        for _ in range(PAUSES + 1):
            response = await ear.listen(ask, assembly, emit)
            if not assembly.paused:
                return response
            asked = replace(request, items=(*request.items, response.message))
            assembly.go_on()
        said = f"paused its answer {PAUSES + 1} times"
        raise failure(self.name, "provider_stream", said, retryable=False)

    def _extra(self, container: str) -> dict[str, Any] | None:
        """The options, and where the provider's tools have worked so far."""
        if not container:
            return self._options or None
        given = self._options.get("container")
        named = {**given, "id": container} if isinstance(given, Mapping) else container
        return {**self._options, "container": named}

    async def aclose(self) -> None:
        """Close the connections; the next request opens new ones."""
        await self._account.aclose()

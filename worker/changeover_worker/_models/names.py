"""Models by name: `openai:NAME`, `anthropic:NAME`, `openai@URL:NAME`."""

from __future__ import annotations

import re
from typing import Final

from changeover_shared._errors import Invalid
from changeover_worker._models import AnthropicModel, OpenAIModel
from changeover_worker._models.model import Model

_COMPATIBLE: Final = re.compile(
    r"openai@(?P<url>https?://(?:\[[^\]/\s]+\]|[^:/\s@\[\]]+)(?::\d+)?(?:/[^:\s]*)?):(?P<name>(?![^/@]+@)\S+)"
)
_USER: Final = re.compile(r"//[^/\s]*@")


def resolve_model(value: Model | str) -> Model:
    """Return the model that `value` is or names; makes no connection.

    `openai@URL:NAME` is a server that speaks chat completions at `URL/chat/completions`. Raises
    `Invalid` for other names, `ExtraMissing` if the SDK is not installed.
    """
    if not isinstance(value, str):
        if not isinstance(value, Model):
            raise Invalid(
                field="models", reason=f"{type(value).__name__} has no name and respond()"
            )
        return value
    if found := _COMPATIBLE.fullmatch(value):
        return OpenAIModel(found["name"], base_url=found["url"], api="chat")
    provider, _, name = value.partition(":")
    if provider == "openai" and name:
        return OpenAIModel(name)
    if provider == "anthropic" and name:
        return AnthropicModel(name)
    shown = _USER.sub("//***@", value)
    raise Invalid(
        field="models",
        reason=f"{shown!r} names no model; write openai:NAME, anthropic:NAME or openai@URL:NAME",
    )

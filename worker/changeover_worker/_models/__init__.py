"""Models behind a provider's SDK, one module a dialect."""

from __future__ import annotations

from changeover_worker._models.anthropic import AnthropicModel
from changeover_worker._models.openai import OpenAIModel

__all__ = ["AnthropicModel", "OpenAIModel"]

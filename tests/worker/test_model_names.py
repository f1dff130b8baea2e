from __future__ import annotations

from typing import Any

import pytest

from changeover_shared._errors import Invalid
from changeover_worker._models import AnthropicModel, OpenAIModel
from changeover_worker._models.names import resolve_model
from changeover_worker.testing import ScriptedModel
from tests.support.asking import ask
from tests.support.model_server import ModelServer, echo_reply


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("openai:gpt-5-mini", OpenAIModel),
        ("openai:ft:gpt-5:mine", OpenAIModel),
        ("anthropic:claude-sonnet-4-5", AnthropicModel),
        ("openai@http://127.0.0.1:8000/v1:llama3:8b", OpenAIModel),
        ("openai@https://models.example/api/v1:org/name", OpenAIModel),
        ("openai@http://[::1]:8000/v1:m", OpenAIModel),
        ("openai@http://host:8000:m:latest", OpenAIModel),
    ],
)
def test_a_string_names_a_model(name: str, kind: type) -> None:
    model = resolve_model(name)

    assert isinstance(model, kind)
    assert model.name == name


async def test_a_compatible_server_is_asked_for_chat_completions() -> None:
    async with ModelServer(answer=echo_reply) as server:
        model: Any = resolve_model(f"openai@{server.url}:llama3:8b")
        await ask(model)
        await model.aclose()

    assert server.requests[0].path == "/v1/chat/completions"
    assert server.requests[0].body["model"] == "llama3:8b"


def test_a_model_stands_for_itself() -> None:
    model = ScriptedModel()

    assert resolve_model(model) is model


@pytest.mark.parametrize(
    "value",
    [
        "",
        "gpt-5-mini",
        "openai:",
        "openai: ",
        "anthropic:",
        "gemini:pro",
        "openai@127.0.0.1:8000:m",
        "openai@ftp://x:m",
        "openai@http://user:secret@host/v1:m",
        "anthropic@http://x/v1:m",
        7,
        None,
    ],
)
def test_what_names_no_model_is_invalid(value: Any) -> None:
    with pytest.raises(Invalid) as caught:
        resolve_model(value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("base_url", ["", "host", "ftp://x", "http://", "http://u:secret@h/v1"])
def test_an_address_must_be_http_without_a_user_in_it(base_url: str) -> None:
    for kind in (OpenAIModel, AnthropicModel):
        with pytest.raises(Invalid) as caught:
            kind("m", base_url=base_url)
        assert "secret" not in str(caught.value)

"""`App` and `load_app`: what a worker is given, and how it is found."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from changeover_shared._errors import AppNotFound, Invalid, SetupError
from changeover_worker import _app
from changeover_worker._agent import Agent
from changeover_worker._app import App
from changeover_worker._app_loading import load_app
from changeover_worker._models.model import Emit, ModelRequest, ModelResponse
from changeover_worker.testing import ScriptedModel, say


class Silent:
    """A model that nobody asks."""

    name = "silent"

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        raise AssertionError("nobody asks this model")


def test_an_app_knows_its_agents_and_models() -> None:
    model, agent = Silent(), Agent("assistant", model="main")
    app = App(agents=[agent], models={"main": model, "spare": "openai:gpt-5-mini"})
    assert app.agents == {"assistant": agent}
    assert app.agent("assistant") is agent
    assert app.model_names == ("main", "spare")
    assert app.model("main") is model


def test_a_model_string_is_resolved_once_and_not_before_it_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolved: list[str] = []

    def resolve(value: str) -> Silent:
        resolved.append(value)
        return Silent()

    monkeypatch.setattr(_app, "resolve_model", resolve)
    app = App(models={"main": "openai:gpt-5-mini"})
    assert resolved == []
    assert app.model("main") is app.model("main")
    assert resolved == ["openai:gpt-5-mini"]


def test_an_unknown_agent_or_model_is_told_with_the_known_ones() -> None:
    app = App(agents=[Agent("a", model="m"), Agent("b", model="m")], models={"m": Silent()})
    with pytest.raises(Invalid, match="there is no agent 'c' in this app; there are: a, b;"):
        app.agent("c")
    with pytest.raises(Invalid, match="there is no model 'x' in this app; there are: m;"):
        app.model("x")


@asynccontextmanager
async def pools(app: App) -> AsyncIterator[dict[str, tuple[str, ...]]]:
    yield {"models": app.model_names}


async def bare(app: App) -> AsyncIterator[None]:
    yield


async def test_the_lifespan_yields_the_resources() -> None:
    async with App(models={"m": Silent()}, lifespan=pools).lifespan() as resources:
        assert resources == {"models": ("m",)}
    async with App().lifespan() as resources:
        assert resources is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"agents": [Agent("a", model="m")]}, "agent 'a': there is no model 'm' in this app"),
        (
            {"agents": [Agent("a", model="m"), Agent("a", model="m")], "models": {"m": Silent()}},
            "two are named 'a'",
        ),
        ({"agents": ["a"]}, "'a' is no Agent"),
        ({"agents": Agent("a", model="m")}, "agents are a sequence of agents"),
        ({"models": {"m": object()}}, "is no model and no model string"),
        ({"models": {"": Silent()}}, "'' is no name"),
        ({"models": "openai:gpt-5-mini"}, "models map names to models"),
        ({"lifespan": 3}, "3 is no function of the app"),
        ({"lifespan": bare}, "add @asynccontextmanager"),
    ],
)
def test_an_app_that_could_not_run_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(Invalid) as caught:
        App(**options)
    assert said in str(caught.value)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current directory; what is imported from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", ".")])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        module = sys.modules[name]
        if str(getattr(module, "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def why(target: str) -> str:
    with pytest.raises(AppNotFound) as caught:
        load_app(target)
    assert caught.value.target == target
    assert "nothing was claimed" in str(caught.value)
    return str(caught.value)


def test_an_app_is_imported_from_the_current_directory(here: Path) -> None:
    (here / "bot.py").write_text(
        "from changeover_worker._app import App\napp = App()\nclass Apps:\n    spare = App()\n"
    )
    module_app = load_app("bot:app")
    assert isinstance(module_app, App)
    assert load_app("bot:app") is module_app
    assert load_app("bot:Apps.spare") is not module_app


@pytest.mark.parametrize("target", ["", "bot", "bot:", ":app", ":"])
def test_a_target_without_module_or_attribute_is_told_the_form(here: Path, target: str) -> None:
    assert "it is not of the form module:attribute" in why(target)


@pytest.mark.parametrize("target", ["bot_nowhere:app", ".bot:app", "bot_nowhere.py:app", "a b:app"])
def test_a_module_that_is_not_there(here: Path, target: str) -> None:
    text = why(target)
    assert "Error: " in text
    assert "_app.py" not in text


def test_a_module_that_has_no_such_attribute_names_the_apps_that_it_has(here: Path) -> None:
    (here / "bot_other.py").write_text(
        "from changeover_worker._app import App\nbot = App()\nport = 80\n"
    )
    assert "has no attribute 'app'; bot_other has the app bot;" in why("bot_other:app")
    assert "it is a int, not an App; bot_other has the app bot;" in why("bot_other:port")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("raise ValueError('no token')", "ValueError: no token"),
        ("import sys; sys.exit('bye')", "SystemExit: bye"),
        ("import no_such_module_here", "ModuleNotFoundError: No module named 'no_such"),
        ("import json; json.loads('{')", "JSONDecodeError: Expecting property name"),
        ("class Odd(BaseException): ...\nraise Odd('x')", "Odd: x"),
    ],
)
def test_a_module_that_raises_is_told_with_the_line_that_did(
    here: Path, line: str, said: str
) -> None:
    (here / "bot_raises.py").write_text("# A comment.\n" + line + "\n")
    text = why("bot_raises:app")
    assert said in text
    failed = 2 + line.count("\n")
    assert f"({here / 'bot_raises.py'}:{failed})" in text


def test_a_module_with_a_syntax_error_is_told_with_its_line(here: Path) -> None:
    (here / "bot_typo.py").write_text("x = 1\napp = App(\n")
    text = why("bot_typo:app")
    assert "SyntaxError: '(' was never closed" in text
    assert f"({here / 'bot_typo.py'}:2)" in text


def test_a_module_whose_agent_is_wrong_names_the_line_of_the_agent(here: Path) -> None:
    (here / "bot_agent.py").write_text(
        "from changeover_worker._agent import Agent\n"
        "\n"
        "assistant = Agent('two words', model='main')\n"
    )
    text = why("bot_agent:app")
    assert "Invalid: agent: 'two words' is not" in text
    assert f"({here / 'bot_agent.py'}:3)" in text


def test_an_interrupt_while_importing_is_left_alone(here: Path) -> None:
    (here / "bot_interrupted.py").write_text("raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        load_app("bot_interrupted:app")


def test_an_agent_whose_model_lacks_its_key_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    app = App(
        models={"main": ScriptedModel.always(say("x")), "other": "openai:gpt-5-mini"},
        agents=[Agent("a", model="main")],
    )
    app.check()
    needy = App(models={"main": "openai:gpt-5-mini"}, agents=[Agent("a", model="main")])
    with pytest.raises(SetupError, match="OPENAI_API_KEY"):
        needy.check()


async def test_closing_an_app_closes_the_models_that_were_asked() -> None:
    app = App(models={"main": "openai@http://127.0.0.1:9/v1:m"}, agents=[Agent("a", model="main")])
    app.model("main")
    await app.aclose()
    await app.aclose()

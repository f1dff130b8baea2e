"""Settings: the environment, what wins over it, and what is refused before anything starts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from changeover_shared._bind import Bind, read_bind
from changeover_shared._errors import Invalid
from changeover_shared._settings import Settings, misspelt, read_settings


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"CHANGEOVER_{name.upper()}", raising=False)


def test_the_defaults_are_the_ones_that_the_documents_name() -> None:
    settings = read_settings()
    assert (settings.prefix, settings.partitions, settings.agent) == ("co", 64, "assistant")
    assert (settings.max_message, settings.max_inbox) == (1024**2, 64)
    assert settings.max_inbox_bytes == 8 * 1024**2
    assert (settings.lease, settings.renew) == (timedelta(seconds=30), timedelta(seconds=10))
    assert (settings.dedup_window, settings.journal_events) == (timedelta(hours=24), 10_000)
    assert (settings.takeover_attempts, settings.max_steps) == (5, 256)
    assert settings.drain_grace == timedelta(seconds=25)


def test_the_environment_is_read_with_units(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "LEASE": "1m", "RENEW": "500ms", "MAX_MESSAGE": "64KiB", "QUEUES": "a, b,,c",
        "PARTITIONS": "8", "TENANT": "acme",
    }.items():  # fmt: skip
        monkeypatch.setenv(f"CHANGEOVER_{name}", value)
    settings = read_settings()
    assert (settings.lease, settings.renew) == (timedelta(minutes=1), timedelta(seconds=0.5))
    assert (settings.max_message, settings.queues) == (65_536, ("a", "b", "c"))
    assert (settings.partitions, settings.tenant) == (8, "acme")


def test_what_is_given_wins_and_none_means_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHANGEOVER_PARTITIONS", "8")
    assert read_settings(partitions=16).partitions == 16
    assert read_settings(partitions=None).partitions == 8


def test_an_empty_variable_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHANGEOVER_PARTITIONS", "")
    settings = read_settings()
    assert settings.partitions == 64
    assert "partitions" not in settings.model_fields_set


def test_it_is_known_whether_the_partitions_were_asked_for() -> None:
    """Hole 38: a default adopts the fleet's number, a choice is checked against it."""
    assert "partitions" in read_settings(partitions=64).model_fields_set
    assert "partitions" not in read_settings().model_fields_set


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"partitions": 0}, "CHANGEOVER_PARTITIONS: "),
        ({"partitions": 4097}, "CHANGEOVER_PARTITIONS: "),
        ({"prefix": "a b"}, "CHANGEOVER_PREFIX: "),
        ({"prefix": "a{b"}, "CHANGEOVER_PREFIX: "),
        ({"agent": ""}, "CHANGEOVER_AGENT: "),
        ({"tenant": "a/b"}, "CHANGEOVER_TENANT: "),
        ({"queues": "a,b c"}, "CHANGEOVER_QUEUES: "),
        ({"lease": "soon"}, "CHANGEOVER_LEASE: .*is no duration"),
        ({"max_message": "big"}, "CHANGEOVER_MAX_MESSAGE: .*is no size"),
        ({"max_inbox": 0}, "CHANGEOVER_MAX_INBOX: "),
        ({"log_format": "xml"}, "CHANGEOVER_LOG_FORMAT: "),
        ({"lease": "20s"}, "settings: lease 0:00:20 must be at least three times renew 0:00:10"),
        ({"lease": "30s", "margin": "20s"}, "settings: margin 0:00:20 leaves no time"),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, Any], said: str) -> None:
    with pytest.raises(Invalid, match=said):
        read_settings(**given)


@pytest.mark.parametrize(
    "given",
    [
        {"prefix": "a b"},
        {"agent": "a b"},
        {"tenant": "a b"},
        {"queues": "a b"},
        {"lease": "soon"},
        {"max_message": "big"},
        {"partitions": 0},
    ],
)
def test_a_wrong_setting_is_told_once_and_says_that_nothing_was_started(
    given: dict[str, Any],
) -> None:
    with pytest.raises(Invalid) as refused:
        read_settings(**given)
    (setting,) = given
    text = str(refused.value)
    assert text.startswith(f"CHANGEOVER_{setting.upper()}: ")
    assert text.count("nothing was") == 1
    assert text.endswith("; nothing was started")
    assert setting not in text


def test_an_unknown_setting_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fleet is upgraded one process at a time, with one environment."""
    monkeypatch.setenv("CHANGEOVER_LATER", "1")
    assert read_settings().prefix == "co"


def test_settings_do_not_change() -> None:
    settings = read_settings()
    with pytest.raises(ValueError, match="frozen"):
        settings.partitions = 8  # type: ignore[misc]


def test_a_wait_for_replicas_ends_before_its_connection_counts_as_lost() -> None:
    assert read_settings(durability_timeout="5s").durability_timeout == timedelta(seconds=5)
    with pytest.raises(Invalid, match="DURABILITY_TIMEOUT"):
        read_settings(durability_timeout="6s")


@pytest.mark.parametrize(
    ("text", "bind"),
    [
        ("off", None),
        ("0.0.0.0:8081", Bind("0.0.0.0", 8081)),
        (":0", Bind("", 0)),
        ("[::1]:8081", Bind("::1", 8081)),
        ("unix:/run/co.sock", Bind(path="/run/co.sock")),
    ],
)
def test_an_address_to_listen_on_is_read_as_it_is_written(text: str, bind: Bind | None) -> None:
    assert read_bind(read_settings(health_bind=text).health_bind, field="x") == bind
    assert bind is None or str(bind) == text


@pytest.mark.parametrize(
    "text", ["8081", "host", "::1:8081", "h:65536", "unix:", "unix:" + "x" * 101]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="CHANGEOVER_HEALTH_BIND"):
        read_settings(health_bind=text)


def test_a_variable_that_is_nearly_a_setting_is_found() -> None:
    environment = {
        "CHANGEOVER_LEAS": "1s",
        "CHANGEOVER_LEASE": "30s",
        "CHANGEOVER_DEMO_DIR": "x",
        "CHANGEOVR_LEASE": "y",
        "HOME": "/",
    }
    assert misspelt(environment) == {"CHANGEOVER_LEAS": "CHANGEOVER_LEASE"}

"""What redis-py and the socket raise becomes one of ours, or stays a mistake."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest
from redis import exceptions as foreign
from redis._parsers.base import BaseParser

from changeover_shared._errors import Busy, Closed, Invalid, ServerUnfit, StoreUnavailable
from changeover_shared._server.foreign_errors import (
    BY_CLASS,
    Meaning,
    foreign_errors,
    meaning_of,
    name_of,
    translated,
)

ALL = [
    kind
    for _, kind in inspect.getmembers(foreign, inspect.isclass)
    if issubclass(kind, BaseException) and kind.__module__ == foreign.__name__
]


def answer(text: str) -> Exception:
    """The exception that redis-py makes of a server's error answer."""
    parse: Callable[[str], Exception] = BaseParser.parse_error
    return parse(text)


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_exception_of_redis_py_has_a_meaning_of_its_own(
    kind: type[BaseException],
) -> None:
    assert kind in BY_CLASS


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_exception_of_redis_py_leaves_as_its_meaning_says(kind: type[Exception]) -> None:
    error = kind("1 h:2") if issubclass(kind, foreign.AskError) else kind("text")
    expected = {
        Meaning.UNAVAILABLE: StoreUnavailable,
        Meaning.UNFIT: ServerUnfit,
        Meaning.BUG: kind,
    }[meaning_of(error)]
    with pytest.raises(expected) as raised, foreign_errors():
        raise error
    assert raised.value is error or raised.value.__cause__ is error


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("READONLY You can't write against a read only replica.", "READONLY You can't"),
        ("LOADING Redis is loading the dataset in memory", "LOADING Redis"),
        ("MASTERDOWN Link with MASTER is down", "MASTERDOWN Link"),
        ("CLUSTERDOWN Hash slot not served", "CLUSTERDOWN Hash"),
        ("TRYAGAIN Multiple keys request during rehashing of slot", "TRYAGAIN Multiple"),
        ("OOM command not allowed when used memory > 'maxmemory'.", "OOM command"),
        ("NOSCRIPT No matching script.", "NOSCRIPT No"),
        ("MISCONF Errors writing to the AOF file: No space left", "MISCONF Errors"),
        ("BUSY Redis is busy running a script.", "BUSY Redis"),
        ("NOREPLICAS Not enough good replicas to write.", "NOREPLICAS Not"),
        ("ERR max number of clients reached", "max number of clients"),
    ],
)
def test_an_answer_that_passes_is_no_answer_and_keeps_its_name(text: str, reason: str) -> None:
    ours = translated(answer(text))
    assert isinstance(ours, StoreUnavailable)
    assert ours.reason.startswith(reason)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("NOAUTH Authentication required.", "give a user and a password"),
        ("WRONGPASS invalid username-password pair or user is disabled.", "check the user"),
        ("NOPERM User w has no permissions to run the 'eval' command", "ACL SETUSER"),
        ("MOVED 3999 10.0.0.1:6381", "redis+cluster://"),
        ("DENIED Redis is running in protected mode", "with a password"),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", "CHANGEOVER_PREFIX"),
        ("ERR unknown command 'SENTINEL', with args beginning with:", "it is no Sentinel"),
        ("ERR unknown command 'EVALSHA', with args beginning with:", "has this command"),
        ("ERR DB index is out of range", "(see CONFIG GET databases)"),
        ("ERR SELECT is not allowed in cluster mode", "use database 0"),
    ],
)
def test_an_answer_that_stays_makes_the_server_unfit_and_says_what_to_do(
    text: str, remedy: str
) -> None:
    ours = translated(answer(text))
    assert isinstance(ours, ServerUnfit)
    assert remedy in str(ours)


@pytest.mark.parametrize(
    "text",
    [
        "ERR wrong number of arguments for 'get' command",
        "ERR user_script:1: attempt to index a nil value",
        "CROSSSLOT Keys in request don't hash to the same slot",
        "EXECABORT Transaction discarded",
    ],
)
def test_a_mistake_of_ours_stays_what_it_is(text: str) -> None:
    error = answer(text)
    assert translated(error) is None
    with pytest.raises(foreign.ResponseError) as raised, foreign_errors():
        raise error
    assert raised.value is error


@pytest.mark.parametrize(
    "error",
    [OSError("no route"), ConnectionResetError(), TimeoutError(), BrokenPipeError("gone")],
    ids=repr,
)
def test_a_broken_or_silent_socket_is_no_answer(error: OSError) -> None:
    with pytest.raises(StoreUnavailable) as raised, foreign_errors():
        raise error
    assert raised.value.reason == (str(error) or type(error).__name__)
    assert raised.value.__cause__ is error


@pytest.mark.parametrize("error", [ValueError("x"), KeyError("x"), KeyboardInterrupt()], ids=repr)
def test_what_has_nothing_to_do_with_redis_passes(error: BaseException) -> None:
    with pytest.raises(type(error)) as raised, foreign_errors():
        raise error
    assert raised.value is error


def test_our_own_errors_pass_without_a_cause_of_their_own() -> None:
    for error in (Closed(session_id="s"), Invalid(field="f", reason="r")):
        with pytest.raises(type(error)) as raised, foreign_errors():
            raise error
        assert raised.value is error
        assert raised.value.__cause__ is None
        assert translated(error) is error


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (answer("OOM command not allowed"), "OOM"),
        (answer("MISCONF disk"), "MISCONF"),
        (answer("ERR syntax error"), "ERR"),
        (foreign.ConnectionError("CONNECTION lost"), ""),
        (OSError("x"), ""),
    ],
)
def test_the_name_is_the_servers_word_and_nobody_elses(error: BaseException, name: str) -> None:
    assert name_of(error) == name


def test_busy_is_not_decided_here() -> None:
    assert not isinstance(translated(answer("OOM command not allowed")), Busy)

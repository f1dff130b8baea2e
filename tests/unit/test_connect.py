"""Where Redis is: which URL wins, what a URL means, what clients are told."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import pytest

from changeover_shared._errors import Invalid
from changeover_shared._server.connect import async_client, connection_options, sync_client
from changeover_shared._server.reach import Reached, reach
from changeover_shared._server.url import Target, parse_url, redis_url
from changeover_shared._settings import read_settings

SECRET = "hunter2"


@pytest.fixture(autouse=True)
def _empty_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CHANGEOVER_REDIS_URL", raising=False)
    monkeypatch.delenv("REDIS_URL", raising=False)


def test_without_any_word_redis_is_on_this_machine() -> None:
    assert redis_url(None, read_settings()) == "redis://localhost:6379/0"


def test_an_embedded_directory_that_is_there_wins_over_this_machine(tmp_path: Path) -> None:
    (tmp_path / ".changeover").mkdir()
    assert redis_url(None, read_settings()) == "embedded://./.changeover"


def test_a_file_of_that_name_is_no_embedded_directory(tmp_path: Path) -> None:
    (tmp_path / ".changeover").write_text("")
    assert redis_url(None, read_settings()) == "redis://localhost:6379/0"


def test_what_is_said_most_nearly_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".changeover").mkdir()
    monkeypatch.setenv("REDIS_URL", "redis://platform/0")
    assert redis_url(None, read_settings()) == "redis://platform/0"
    monkeypatch.setenv("CHANGEOVER_REDIS_URL", "redis://fleet/0")
    assert redis_url(None, read_settings()) == "redis://fleet/0"
    assert redis_url("redis://argument/0", read_settings()) == "redis://argument/0"


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("redis://h", Target("redis", host="h")),
        ("redis://h/", Target("redis", host="h")),
        ("REDIS://h:6380/3", Target("redis", host="h", port=6380, db=3)),
        ("valkey://h:6380?db=4", Target("redis", host="h", port=6380, db=4)),
        ("redis://:p%40s@h", Target("redis", host="h", password="p@s")),
        ("redis://u:p@[::1]:7", Target("redis", host="::1", port=7, username="u", password="p")),
        (
            "rediss://h?ssl_cert_reqs=none&ssl_ca_certs=/ca.pem",
            Target(
                "rediss", host="h", tls=(("ssl_ca_certs", "/ca.pem"), ("ssl_cert_reqs", "none"))
            ),
        ),
        (
            "redis+cluster://u:p%40@a:1,[::1]:2,c",
            Target(
                "redis",
                kind="cluster",
                nodes=(("a", 1), ("::1", 2), ("c", 6379)),
                username="u",
                password="p@",
            ),
        ),
        (
            "rediss+cluster://a?ssl_ca_certs=/ca.pem",
            Target(
                "rediss", kind="cluster", nodes=(("a", 6379),), tls=(("ssl_ca_certs", "/ca.pem"),)
            ),
        ),
        (
            "redis+sentinel://:p@a,b:3/main/2?sentinel_username=s&sentinel_password=t",
            Target(
                "redis",
                kind="sentinel",
                nodes=(("a", 26379), ("b", 3)),
                service="main",
                db=2,
                password="p",
                sentinel_username="s",
                sentinel_password="t",
            ),
        ),
        ("unix:///run/r.sock", Target("unix", path="/run/r.sock")),
        (
            "unix://u:p@/run/a%20b.sock?db=2",
            Target("unix", path="/run/a b.sock", db=2, username="u", password="p"),
        ),
        ("embedded://", Target("embedded", path="./.changeover")),
        ("embedded://./data", Target("embedded", path="./data")),
        ("embedded:///var/lib/co", Target("embedded", path="/var/lib/co")),
    ],
)
def test_a_url_names_one_target(url: str, target: Target) -> None:
    assert parse_url(url) == target


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis+cluster://u:p@a:1,[::1]:2", "redis+cluster://u:***@a:1,[::1]:2"),
        ("rediss+cluster://a", "rediss+cluster://a:6379"),
        (
            "redis+sentinel://:p@a,b:3/main?sentinel_password=t",
            "redis+sentinel://:***@a:26379,b:3/main/0",
        ),
    ],
)
def test_several_servers_are_shown_without_secrets(url: str, shown: str) -> None:
    assert parse_url(url).shown == shown


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "redis+cluster://, rediss+cluster://, redis+sentinel://"),
        ("localhost:6379", "must start with one of"),
        ("redis:h", "must start with one of"),
        ("http://h", "must start with one of"),
        ("redis+clusters://h", "must start with one of"),
        ("redis+cluster://", "from 1 to 65535"),
        ("redis+cluster://a:1,:2", "from 1 to 65535"),
        ("redis+cluster://a:1,b:x", "from 1 to 65535"),
        ("redis+cluster://a:1,b:0", "from 1 to 65535"),
        ("redis+cluster://u:p@a:1,u:p@b:2", "percent-encoded"),
        ("redis+cluster://a:1,b..c:2", "cannot be read"),
        ("redis+cluster://a/1", "database 0 only"),
        ("redis+cluster://a?ssl_ca_certs=/ca", "unknown option"),
        ("redis+sentinel://a:1,b:2", "names no service"),
        ("redis+sentinel://a:1/main/x", "not a number"),
        ("redis://", "names no host"),
        ("redis:///0", "names no host"),
        ("redis://:6379/0", "names no host"),
        ("redis://h:0", "port 0"),
        ("redis://h:65536", "from 1 to 65535"),
        ("redis://h:port", "from 1 to 65535"),
        ("redis://[::1", "from 1 to 65535"),
        ("redis://a..b", "cannot be read"),
        (f"redis://{'a' * 64}", "cannot be read"),
        ("redis://h%00", "cannot be read"),
        ("redis://h/first", "not a number"),
        (f"redis://h/{'9' * 5000}", "not a number"),
        ("redis://h/-1", "not a number"),
        ("redis://h?db=x", "not a number"),
        ("redis://h#1", "after #"),
        ("redis://h?ssl_cert_reqs=none", "unknown option; redis:// takes db"),
        ("rediss://h?timeout=1", "unknown option"),
        ("rediss://h?ssl_keyfile=/k", "ssl_certfile"),
        ("rediss://h?ssl_cert_reqs=maybe", "required, optional, none"),
        ("rediss://h?ssl_check_hostname=no", "true, false"),
        ("unix://run/r.sock", "names no socket"),
        ("unix:///", "names no socket"),
        ("embedded://a\0b", "NUL"),
    ],
)
def test_a_url_that_names_nothing_is_invalid_and_says_why(url: str, said: str) -> None:
    with pytest.raises(Invalid) as refusal:
        parse_url(url)
    assert said in str(refusal.value)


@pytest.mark.parametrize(
    "url",
    [
        f"redis://u:{SECRET}@:1",
        f"redis://u:{SECRET}@h:x",
        f"redis://:{SECRET}/x@h",
        f"redis://:{SECRET}#x@h",
        f"redis://u:1?{SECRET}@h",
        f"redis://u:1/{SECRET}@h",
        f"redis://h/0?password={SECRET}",
        f"rediss://u:{SECRET}@h?ssl_cert_reqs=x",
        f"http://u:{SECRET}@h",
        f"{SECRET}://h",
    ],
)
def test_a_refusal_never_shows_the_password(url: str) -> None:
    with pytest.raises(Invalid) as refusal:
        parse_url(url)
    assert SECRET not in "".join(traceback.format_exception_only(refusal.value))
    assert SECRET not in repr(refusal.value.__cause__)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"redis://u:{SECRET}@h/1", "redis://u:***@h:6379/1"),
        (f"redis://:{SECRET}@h", "redis://:***@h:6379/0"),
        (f"redis://{SECRET}@h", "redis://***@h:6379/0"),
        (f"rediss://:{SECRET}@[::1]:7", "rediss://:***@[::1]:7/0"),
        (f"unix://u:{SECRET}@/run/r.sock", "unix://u:***@/run/r.sock?db=0"),
        ("embedded://./x", "embedded://./x"),
    ],
)
def test_a_target_is_shown_without_its_password(url: str, shown: str) -> None:
    target = parse_url(url)
    assert target.shown == shown
    assert SECRET not in repr(target)


async def test_clients_never_retry_and_answer_in_bytes_of_the_old_protocol() -> None:
    target = parse_url("redis://h:1")
    async with async_client(target, name="w") as waiting:
        blocking = sync_client(target, name="w")
        for pool in (waiting.connection_pool, blocking.connection_pool):
            connection: Any = pool.make_connection()
            assert connection.retry.get_retries() == 0
            assert connection.retry_on_error == []
            assert connection.protocol == 2
            assert connection.health_check_interval == 0
            assert connection.socket_connect_timeout == 5
            assert connection.encoder.decode_responses is False


def test_options_say_how_to_connect_for_each_scheme() -> None:
    tcp = connection_options(parse_url("redis://h:1/2"), "w", 3, 4.0)
    assert (tcp["host"], tcp["port"], tcp["db"], tcp["client_name"]) == ("h", 1, 2, "w")
    assert (tcp["max_connections"], tcp["socket_timeout"]) == (3, 4.0)
    assert tcp["socket_keepalive"] is True
    assert "ssl" not in tcp
    unix = connection_options(parse_url("unix:///s"), "", 1, None)
    assert unix["unix_socket_path"] == "/s"
    assert "host" not in unix
    tls = connection_options(parse_url("rediss://h?ssl_check_hostname=false"), "", 1, None)
    assert (tls["ssl"], tls["ssl_check_hostname"]) == (True, False)


def test_an_embedded_target_has_no_options_before_it_is_reached() -> None:
    with pytest.raises(ValueError, match="must be reached"):
        connection_options(parse_url("embedded://x"), "", 1, None)


def test_a_server_that_is_not_embedded_is_reached_without_asking_it() -> None:
    reached = reach("redis://nobody.invalid:1")
    assert reached == Reached(Target("redis", host="nobody.invalid", port=1))
    reached.close()

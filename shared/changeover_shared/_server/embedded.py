"""A server of one's own: started by the first process that needs it, stopped by the last.

Three files in its directory decide who may do what. Each is held by a kernel lock (flock), which
ends with its holder however that ends, so a stale file is never taken for a living process:

* `starting`  exclusive, while somebody joins or leaves.
* `users`     shared, by every user for as long as it uses the server. A leaver that can have it
              alone was the last one and stops the server.
* `running`   exclusive, while a server lives: the server inherits the locked file.

A user that is killed cannot stop the server. The next one finds it through `running` and `port`
and goes on with it. The data is in an append-only file and survives a stop.
"""

from __future__ import annotations

import fcntl
import socket
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import IO

from changeover_shared._errors import ServerUnfit
from changeover_shared._server.process import (
    LOOPBACK,
    Running,
    ask,
    find_program,
    last_lines,
    launch,
    signal,
)

_PORTS_TO_TRY = 5
_PAUSE_S = 0.01
_ANSWER_WITHIN_S = 20.0
_STOP_WITHIN_S = 10.0
_TURN_WITHIN_S = 60.0


class Embedded:
    """One user's share of an embedded server, until `close`, the end of the process, or until
    nobody refers to it any more."""

    def __init__(self, directory: Path, server: Running, membership: IO[bytes]) -> None:
        self.directory = directory
        self.url = server.url
        self.pid = server.pid
        self.version = server.version
        self._leave = weakref.finalize(self, _leave, directory, server, membership)

    def close(self) -> None:
        """Leave; the last one out stops the server and waits for its end. May be repeated."""
        self._leave()


@contextmanager
def embedded(directory: Path) -> Iterator[str]:
    """Use the embedded server of a directory; yields its URL. As `attach`."""
    with closing(attach(directory)) as server:
        yield server.url


def attach(directory: Path) -> Embedded:
    """Join the embedded server of a directory, starting it when it does not run.

    Safe in threads and processes at once. Blocks until the server has read its data. Raises
    `ExtraMissing` when no server is installed, and `ServerUnfit` when it does not start or the
    directory cannot be used; nothing of ours runs then.
    """
    directory = directory.absolute()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _our_turn(directory):
            membership = _lock(directory / "users", fcntl.LOCK_SH)
            if membership is None:
                raise _unfit(
                    f"{directory / 'users'} is locked by a program that is not ours; "
                    "nothing was started"
                )
            try:
                server = _ensure_running(directory)
            except BaseException:
                membership.close()
                raise
    except OSError as error:
        raise _unfit(
            f"the embedded server's directory cannot be used: {error}; nothing was started; "
            "give one that this user may write, as embedded://<directory>"
        ) from error
    return Embedded(directory, server, membership)


def _leave(directory: Path, server: Running, membership: IO[bytes]) -> None:
    try:
        with _our_turn(directory):
            membership.close()
            alone = _lock(directory / "users", fcntl.LOCK_EX)
            if alone is not None:
                with alone:
                    _stop(directory)
    except FileNotFoundError:
        # Somebody removed the directory: nobody can find this server or its data any more.
        found = ask(server.port)
        if found is not None and found[0].run_id == server.run_id:
            signal(found[0], SIGTERM)
    finally:
        membership.close()


def _ensure_running(directory: Path) -> Running:
    """Wait for the server that runs, or start one as often as it loses the race for its port."""
    log = directory / "server.log"
    starts, said_before = 0, 0
    deadline = time.monotonic() + _ANSWER_WITHIN_S
    while time.monotonic() < deadline:
        held = _lock(directory / "running", fcntl.LOCK_EX)
        if held is not None:
            with held:
                if starts:
                    _port_was_taken(log, said_before, starts)
                said_before = log.stat().st_size if log.exists() else 0
                _start(directory, held, again=starts > 0)
            starts += 1
        server = _answering(directory)
        if server is not None and not server.loading:
            return server
        if server is not None:
            deadline = time.monotonic() + _ANSWER_WITHIN_S
        time.sleep(_PAUSE_S)
    raise _unfit(_silent(directory))


def _start(directory: Path, held: IO[bytes], *, again: bool) -> None:
    """Start on the port of last time, so that clients which remember it come back, if possible."""
    program = find_program()
    port = (None if again else _last_port(directory)) or _free_port()
    (directory / "port").write_text(str(port))
    launch(program, directory, port, held)


def _port_was_taken(log: Path, said_before: int, starts: int) -> None:
    """Return when the server ended only because its port was taken; else raise `ServerUnfit`."""
    with log.open("rb") as file:
        file.seek(said_before)
        said = file.read().decode(errors="replace")
    if "Address already in use" not in said or starts >= _PORTS_TO_TRY:
        raise _unfit(
            f"the embedded server ended while it started: {last_lines(said)}; its data is "
            f"left as it is; see {log}, repair or remove the data in {log.parent}"
        )


def _stop(directory: Path) -> None:
    server = _answering(directory)
    if server is None:
        # Never signal a process that did not just say that it is ours.
        return
    for number in (SIGTERM, SIGKILL):
        signal(server, number)
        ended = _patiently(lambda: _lock(directory / "running", fcntl.LOCK_EX), _STOP_WITHIN_S)
        if ended is not None:
            ended.close()
            return


def _answering(directory: Path) -> Running | None:
    """The server on the noted port, if it is the one of this directory."""
    port = _last_port(directory)
    found = ask(port) if port else None
    if found is None:
        return None
    running, its_directory = found
    try:
        return running if its_directory.samefile(directory) else None
    except OSError:
        return None


@contextmanager
def _our_turn(directory: Path) -> Iterator[None]:
    """One process or thread at a time joins or leaves."""
    turn = _patiently(lambda: _lock(directory / "starting", fcntl.LOCK_EX), _TURN_WITHIN_S)
    if turn is None:
        raise _unfit(
            f"another process has been starting or stopping the embedded server of {directory} "
            f"for {_TURN_WITHIN_S:g} s; nothing was started; end that process"
        )
    with turn:
        try:
            yield
        finally:
            # Explicitly: a child that was forked just now has a copy of the open file.
            fcntl.flock(turn, fcntl.LOCK_UN)


def _lock(path: Path, how: int) -> IO[bytes] | None:
    """An open file that holds the lock until it is closed, or None when others hold it."""
    file = path.open("ab", buffering=0)
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    except BaseException:
        file.close()
        raise
    return file


def _unfit(finding: str) -> ServerUnfit:
    return ServerUnfit([finding])


def _patiently(attempt: Callable[[], IO[bytes] | None], within_s: float) -> IO[bytes] | None:
    deadline = time.monotonic() + within_s
    while (got := attempt()) is None and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)
    return got


def _last_port(directory: Path) -> int | None:
    try:
        return int((directory / "port").read_text())
    except (FileNotFoundError, ValueError):
        return None


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def _silent(directory: Path) -> str:
    pid = directory / "server.pid"
    which = pid.read_text().strip() if pid.exists() else "unknown"
    return (
        f"the embedded server of {directory} (process {which}) lives but has not answered on port "
        f"{_last_port(directory)} for {_ANSWER_WITHIN_S:g} s; nothing was started; end that process"
    )

"""The seam to Redis for code without an event loop: the same words as `executor.Executor`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

from redis import Redis
from redis.exceptions import AskError, ClusterDownError, MovedError, NoScriptError, ReadOnlyError

from changeover_shared._errors import ServerUnfit, StoreUnavailable
from changeover_shared._server.foreign_errors import foreign_errors, translated
from changeover_shared._server.reach import Reached, reach
from changeover_shared._server.url import Target
from changeover_shared._store.barrier import Need
from changeover_shared._store.calls import ELSEWHERE, ROUNDS, Call, Item
from changeover_shared._store.clock import ServerClock
from changeover_shared._store.closing import refuse_if
from changeover_shared._store.scripts import Script, Value
from changeover_shared._store.slots import key_of
from changeover_shared._store.sync_servers import SyncCluster, SyncOneServer, SyncServers
from changeover_shared._store.sync_wire import SyncWire


class SyncExecutor:
    """Runs commands and scripts; may be shared by threads."""

    def __init__(self, servers: SyncServers, *, where: str, reached: Reached | None = None) -> None:
        self.clock = ServerClock()
        self.plain_scripts = reached is None
        """The server knows no script flags: it is one that was given, for tests."""
        self.where = where
        """The server, as people may see it."""
        self._servers = servers
        self._reached = reached
        self._closed = False

    @classmethod
    def given(cls, client: Redis, blocking: Redis) -> Self:
        """An executor on clients of a server that knows no replication (fakeredis)."""
        wire = SyncWire.given(client, blocking)
        return cls(SyncOneServer(wire), where=wire.name)

    @classmethod
    def connect(cls, url: str, *, name: str = "", timeout_s: float = 5.0) -> Self:
        """Reach the servers of a URL, starting an embedded one. Nothing is sent yet."""
        reached = reach(url)
        target = reached.target
        return cls(_servers(target, name, timeout_s), where=target.shown, reached=reached)

    def command(self, *args: Value) -> Any:
        """Run one command. Raises `StoreUnavailable` when the outcome is unknown."""
        return self._commands([args])[0]

    def commands(self, commands: Sequence[Sequence[Value]]) -> list[Any]:
        """Run several commands, in order on each server; raises the first error among them."""
        return self._commands(commands)

    def blocking(self, *args: Value, block_s: float) -> Any:
        """Run one blocking read; `block_s` is at most twice the connection's time-out."""
        item = Item[SyncWire](key_of(args), args)
        with self._errors():
            for _ in range(ROUNDS):
                wire = self._wire_for(item)
                if wire is None:
                    raise item.answer
                commands = list(item.commands("", plain=self.plain_scripts))
                item.answer = wire.block(commands)
                if not isinstance(item.answer, Exception):
                    return item.answer
                if not isinstance(item.answer, ELSEWHERE) or not self._has_elsewhere(item):
                    raise item.answer
        raise StoreUnavailable(reason=f"{args[0]!r} was sent elsewhere {ROUNDS} times")

    def run(self, call: Call) -> list[Any]:
        """Run a script; its reply without the time that it ends with."""
        answer = self.run_all([call])[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def run_all(self, calls: Sequence[Call]) -> list[list[Any] | Exception]:
        """Run scripts, in order on each server; each has its own reply or error."""
        items = [Item[SyncWire](call.key, call) for call in calls]
        with self._errors():
            self._run(items)
            return [self._reply_or_error(item.answer) for item in items]

    def on_every_primary(self, *args: Value) -> dict[str, Any]:
        """Run one command on every primary: its reply by the server's name.

        Raises the first error among them.
        """
        found = {}
        with self._errors():
            for wire in self._servers.every():
                (answer,) = wire.send([args])
                if isinstance(answer, BaseException):
                    raise answer
                found[wire.name] = answer
        return found

    def on_each_primary(self, *args: Value) -> dict[str, Any]:
        """Run one command on every primary: its reply by the server's name, or why it gave none.

        Raises `StoreUnavailable` when it is unknown which primaries there are.
        """
        with self._errors():
            answers = [(wire.name, *wire.send([args])) for wire in self._servers.every()]
        return {name: translated(answer) or answer for name, answer in answers}

    def on_primary(self, name: str, *args: Value) -> Any:
        """Run one command on the primary that `on_every_primary` calls so.

        Raises `StoreUnavailable` when it is none any more.
        """
        with self._errors():
            for wire in self._servers.every():
                if wire.name == name:
                    (answer,) = wire.send([args])
                    if isinstance(answer, BaseException):
                        raise answer
                    return answer
        raise StoreUnavailable(reason=f"{name} is no primary any more")

    def primary_of(self, key: str) -> str:
        """The name of the server that has a key."""
        with self._errors():
            return self._servers.at(key).name

    def replication_id(self, key: str) -> str:
        """The replication id of the server that has a key; `none` where it has no INFO."""
        with self._errors():
            return self._servers.of(key).history.replid

    def confirmed(self, keys: Sequence[str], need: Need) -> list[tuple[int, str]]:
        """Wait until what was written before to the servers of keys is as safe as `need` says.

        For each key, how many confirmed, and the replication id of the server that says so: none
        and '' where no server answered.
        """
        answers: dict[SyncWire, tuple[int, str]] = {}
        return [self._confirmed(key, need, answers) for key in keys]

    @property
    def changes(self) -> int:
        """How often a server turned out to be another one, or the same after a restart."""
        return self._servers.changes

    def close(self) -> None:
        """Close every connection; nothing is sent afterwards."""
        self._closed = True
        self._servers.close()
        if self._reached is not None:
            self._reached.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        refuse_if(self._closed)
        try:
            with foreign_errors():
                yield
        except (AttributeError, TypeError, ValueError) as error:
            # What redis-py stumbles over when another thread takes its socket away.
            if not self._closed:
                raise
            raise StoreUnavailable(reason="the connection was closed") from error

    def _commands(self, commands: Sequence[Sequence[Value]]) -> list[Any]:
        items = [Item[SyncWire](key_of(args), tuple(args)) for args in commands]
        with self._errors():
            self._run(items)
            for item in items:
                if isinstance(item.answer, BaseException):
                    raise item.answer
        return [item.answer for item in items]

    def _confirmed(
        self, key: str, need: Need, answers: dict[SyncWire, tuple[int, str]]
    ) -> tuple[int, str]:
        try:
            with self._errors():
                wire = self._servers.of(key)
                if wire not in answers:
                    answers[wire] = wire.confirmed(key, need)
                return answers[wire]
        except StoreUnavailable:
            return 0, ""
        except ServerUnfit as error:
            # Its slot is on its way to another server, which has confirmed nothing yet.
            if isinstance(error.__cause__, MovedError) and self._servers.moved(error.__cause__):
                return 0, ""
            if isinstance(error.__cause__, AskError) and self._servers.asked(error.__cause__):
                return 0, ""
            raise

    def _run(self, items: Sequence[Item[SyncWire]]) -> None:
        """Send everything to where it belongs, until nothing is sent elsewhere any more."""
        for _ in range(ROUNDS):
            groups: dict[SyncWire, list[Item[SyncWire]]] = {}
            for item in items:
                wire = self._wire_for(item)
                if wire is not None:
                    groups.setdefault(wire, []).append(item)
            for wire, group in groups.items():
                self._send(wire, group)
            items = [
                item
                for item in items
                if isinstance(item.answer, ELSEWHERE) and self._has_elsewhere(item)
            ]
            if not items:
                return
        for item in items:
            item.answer = StoreUnavailable(reason=f"it was sent elsewhere {ROUNDS} times")

    def _wire_for(self, item: Item[SyncWire]) -> SyncWire | None:
        """Where a command must go; None when that server cannot be reached, which is its answer."""
        try:
            if item.at is None:
                return self._servers.of(item.key)
            item.at.met()
        except Exception as error:
            item.answer = error
            return None
        return item.at

    def _send(self, wire: SyncWire, items: Sequence[Item[SyncWire]]) -> None:
        replid = wire.history.replid
        commands = [
            one for item in items for one in item.commands(replid, plain=self.plain_scripts)
        ]
        answers = iter(wire.send(commands, claim=replid))
        for item in items:
            item.take(answers)
        for item in items:
            if isinstance(item.answer, NoScriptError) and isinstance(item.ask, Call):
                refusal = self._load(wire, item.ask.script)
                if refusal is not None:
                    item.answer = refusal
            elif isinstance(item.answer, (ClusterDownError, ReadOnlyError)):
                wire.doubt()

    def _has_elsewhere(self, item: Item[SyncWire]) -> bool:
        """Whether a command that was not run has somewhere to go."""
        match item.answer:
            case MovedError():
                item.at = None
                return self._servers.moved(item.answer)
            case AskError():
                item.at = self._servers.asked(item.answer)
                return item.at is not None
        return isinstance(item.ask, Call)

    def _load(self, wire: SyncWire, script: Script) -> BaseException | None:
        """Teach a server a script; answers with the error of one that does not take it."""
        text = script.plain if self.plain_scripts else script.text
        (answer,) = wire.send([("SCRIPT", "LOAD", text)])
        return answer if isinstance(answer, BaseException) else None

    def _reply_or_error(self, answer: Any) -> list[Any] | Exception:
        if isinstance(answer, BaseException):
            known = translated(answer)
            if known is None:
                raise answer
            return known
        self.clock.saw(int(answer.pop()))
        answer[0] = answer[0].decode()
        return list(answer)


def _servers(target: Target, name: str, timeout_s: float) -> SyncServers:
    if target.kind == "cluster":
        return SyncCluster(target, name=name, timeout_s=timeout_s)
    return SyncOneServer(SyncWire.to(target, name=name, timeout_s=timeout_s))

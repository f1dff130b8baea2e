"""The one seam to Redis: each command goes to the server that has its key.

What is issued in one tick of the loop leaves as one pipeline to each server. Nothing is retried
here but what a server did not run: a script that it has not seen, a key that is elsewhere.
Retries belong to the stores, which know the ids that make them safe.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Self

from redis.asyncio import Redis
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
from changeover_shared._store.servers import Cluster, OneServer, Servers
from changeover_shared._store.slots import key_of
from changeover_shared._store.wire import Wire


class Executor:
    """Runs commands and scripts over few connections. Safe to share within one event loop."""

    def __init__(self, servers: Servers, *, where: str, reached: Reached | None = None) -> None:
        self.clock = ServerClock()
        self.plain_scripts = reached is None
        """The server knows no script flags: it is one that was given, for tests."""
        self.where = where
        """The server, as people may see it."""
        self._servers = servers
        self._reached = reached
        self._loading: dict[tuple[Wire, str], asyncio.Future[Any]] = {}
        self._closed = False

    @classmethod
    def given(cls, client: Redis, blocking: Redis) -> Self:
        """An executor on clients of a server that knows no replication (fakeredis)."""
        wire = Wire.given(client, blocking)
        return cls(OneServer(wire), where=wire.name)

    @classmethod
    async def connect(cls, url: str, *, name: str = "", timeout_s: float = 5.0) -> Self:
        """Reach the servers of a URL, starting an embedded one. Nothing is sent yet.

        Raises `Invalid`, `ExtraMissing` or `ServerUnfit`.
        """
        reached = await asyncio.to_thread(reach, url)
        target = reached.target
        return cls(_servers(target, name, timeout_s), where=target.shown, reached=reached)

    async def command(self, *args: Value) -> Any:
        """Run one command. Raises `StoreUnavailable` when the outcome is unknown."""
        return (await self._commands([args]))[0]

    async def commands(self, commands: Sequence[Sequence[Value]]) -> list[Any]:
        """Run several commands, in order on each server; raises the first error among them."""
        return await self._commands(commands)

    async def blocking(self, *args: Value, block_s: float) -> Any:
        """Run one blocking read on a connection of its own."""
        refuse_if(self._closed)
        item = Item[Wire](key_of(args), args)
        with foreign_errors():
            for _ in range(ROUNDS):
                wire = await self._wire_for(item)
                if wire is None:
                    raise item.answer
                commands = list(item.commands("", plain=self.plain_scripts))
                item.answer = await wire.block(commands, block_s=block_s)
                if not isinstance(item.answer, Exception):
                    return item.answer
                if not isinstance(item.answer, ELSEWHERE) or not self._has_elsewhere(item):
                    raise item.answer
        raise StoreUnavailable(reason=f"{args[0]!r} was sent elsewhere {ROUNDS} times")

    async def run(self, call: Call) -> list[Any]:
        """Run a script; its reply without the time that it ends with."""
        item = Item[Wire](call.key, call)
        with foreign_errors():
            await self._run([item])
            if isinstance(item.answer, BaseException):
                raise item.answer
        return self._decoded(item.answer)

    async def run_all(self, calls: Sequence[Call]) -> list[list[Any] | Exception]:
        """Run scripts, in order on each server; each has its own reply or error."""
        items = [Item[Wire](call.key, call) for call in calls]
        with foreign_errors():
            await self._run(items)
        return [self._reply_or_error(item.answer) for item in items]

    async def on_every_primary(self, *args: Value) -> dict[str, Any]:
        """Run one command on every primary: its reply by the server's name.

        Raises the first error among them.
        """
        with foreign_errors():
            wires = await self._servers.every()
            answers = await asyncio.gather(*(wire.send([args]) for wire in wires))
            for (answer,) in answers:
                if isinstance(answer, BaseException):
                    raise answer
        return {wire.name: answer for wire, (answer,) in zip(wires, answers, strict=True)}

    async def on_each_primary(self, *args: Value, within_s: float | None = None) -> dict[str, Any]:
        """Run one command on every primary: its reply by the server's name, or why it gave none.

        Who is silent for `within_s` gives none. Raises `StoreUnavailable` when it is unknown which
        primaries there are.
        """
        with foreign_errors():
            wires = await self._servers.every()
            asked = (asyncio.wait_for(wire.send([args]), within_s) for wire in wires)
            answers = await asyncio.gather(*asked, return_exceptions=True)
        found = {}
        for wire, answer in zip(wires, answers, strict=True):
            reply = answer if isinstance(answer, BaseException) else answer[0]
            found[wire.name] = translated(reply) or reply
        return found

    async def on_primary(self, name: str, *args: Value) -> Any:
        """Run one command on the primary that `on_every_primary` calls so.

        Raises `StoreUnavailable` when it is none any more.
        """
        with foreign_errors():
            for wire in await self._servers.every():
                if wire.name == name:
                    (answer,) = await wire.send([args])
                    if isinstance(answer, BaseException):
                        raise answer
                    return answer
        raise StoreUnavailable(reason=f"{name} is no primary any more")

    async def primary_of(self, key: str) -> str:
        """The name of the server that has a key."""
        with foreign_errors():
            return (await self._servers.at(key)).name

    async def replication_id(self, key: str) -> str:
        """The replication id of the server that has a key; `none` where it has no INFO."""
        with foreign_errors():
            return (await self._servers.of(key)).history.replid

    async def confirmed(self, keys: Sequence[str], need: Need) -> list[tuple[int, str]]:
        """Wait until what was written before to the servers of keys is as safe as `need` says.

        For each key, how many confirmed, and the replication id of the server that says so: none
        and '' where no server answered.
        """
        return list(await asyncio.gather(*(self._confirmed(key, need) for key in keys)))

    @property
    def changes(self) -> int:
        """How often a server turned out to be another one, or the same after a restart."""
        return self._servers.changes

    @property
    def meetings(self) -> int:
        """How many connections have been made: one more, and another one was lost."""
        return self._servers.meetings

    async def aclose(self) -> None:
        """Wait for what is on the wire, then close every connection; nothing is sent afterwards."""
        self._closed = True
        await self._servers.aclose()
        if self._reached is not None:
            await asyncio.to_thread(self._reached.close)

    async def _commands(self, commands: Sequence[Sequence[Value]]) -> list[Any]:
        items = [Item[Wire](key_of(args), tuple(args)) for args in commands]
        with foreign_errors():
            await self._run(items)
            for item in items:
                if isinstance(item.answer, BaseException):
                    raise item.answer
        return [item.answer for item in items]

    async def _confirmed(self, key: str, need: Need) -> tuple[int, str]:
        try:
            with foreign_errors():
                return await (await self._servers.of(key)).confirmed(key, need)
        except StoreUnavailable:
            return 0, ""
        except ServerUnfit as error:
            # Its slot is on its way to another server, which has confirmed nothing yet.
            if isinstance(error.__cause__, MovedError) and self._servers.moved(error.__cause__):
                return 0, ""
            if isinstance(error.__cause__, AskError) and self._servers.asked(error.__cause__):
                return 0, ""
            raise

    async def _run(self, items: Sequence[Item[Wire]]) -> None:
        """Send everything to where it belongs, until nothing is sent elsewhere any more."""
        refuse_if(self._closed)
        for _ in range(ROUNDS):
            groups: dict[Wire, list[Item[Wire]]] = {}
            for item in items:
                wire = await self._wire_for(item)
                if wire is not None:
                    groups.setdefault(wire, []).append(item)
            if len(groups) == 1:
                await self._send(*groups.popitem())
            else:
                await asyncio.gather(*(self._send(*group) for group in groups.items()))
            items = [
                item
                for item in items
                if isinstance(item.answer, ELSEWHERE) and self._has_elsewhere(item)
            ]
            if not items:
                return
        for item in items:
            item.answer = StoreUnavailable(reason=f"it was sent elsewhere {ROUNDS} times")

    async def _wire_for(self, item: Item[Wire]) -> Wire | None:
        """Where a command must go; None when that server cannot be reached, which is its answer."""
        try:
            if item.at is None:
                return await self._servers.of(item.key)
            await item.at.met()
        except Exception as error:
            item.answer = error
            return None
        return item.at

    async def _send(self, wire: Wire, items: Sequence[Item[Wire]]) -> None:
        replid = wire.history.replid
        commands = [
            one for item in items for one in item.commands(replid, plain=self.plain_scripts)
        ]
        answers = iter(await wire.send(commands, claim=replid))
        for item in items:
            item.take(answers)
        for item in items:
            if isinstance(item.answer, NoScriptError) and isinstance(item.ask, Call):
                refusal = await self._load(wire, item.ask.script)
                if refusal is not None:
                    item.answer = refusal
            elif isinstance(item.answer, (ClusterDownError, ReadOnlyError)):
                await wire.doubt()

    def _has_elsewhere(self, item: Item[Wire]) -> bool:
        """Whether a command that was not run has somewhere to go."""
        match item.answer:
            case MovedError():
                item.at = None
                return self._servers.moved(item.answer)
            case AskError():
                item.at = self._servers.asked(item.answer)
                return item.at is not None
        return isinstance(item.ask, Call)

    async def _load(self, wire: Wire, script: Script) -> BaseException | None:
        """Teach a server a script; all who miss it at the same time wait for one load.

        Answers with the error of a server that does not take it.
        """
        loading = self._loading.get((wire, script.name))
        if loading is None:
            text = script.plain if self.plain_scripts else script.text
            loading = asyncio.ensure_future(wire.send([("SCRIPT", "LOAD", text)]))
            self._loading[wire, script.name] = loading
            loading.add_done_callback(lambda _: self._loading.pop((wire, script.name), None))
        (answer,) = await asyncio.shield(loading)
        return answer if isinstance(answer, BaseException) else None

    def _decoded(self, reply: list[Any]) -> list[Any]:
        self.clock.saw(int(reply.pop()))
        reply[0] = reply[0].decode()
        return reply

    def _reply_or_error(self, reply: Any) -> list[Any] | Exception:
        if not isinstance(reply, BaseException):
            return self._decoded(reply)
        known = translated(reply)
        if known is None:
            raise reply
        return known


def _servers(target: Target, name: str, timeout_s: float) -> Servers:
    if target.kind == "cluster":
        return Cluster(target, name=name, timeout_s=timeout_s)
    return OneServer(Wire.to(target, name=name, timeout_s=timeout_s))

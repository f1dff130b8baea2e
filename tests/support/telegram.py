"""A Telegram on loopback: it brings updates to webhooks until it is told 2xx, over connections that
break, and takes `sendMessage`."""

from __future__ import annotations

import asyncio
import itertools
import json
from asyncio import StreamReader, StreamWriter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

import httpx2

from tests.support.model_server import ModelServer, Reply, Request

SECRET = "s3cret"
TOKEN = "1:token"
MOST = 10
"""How often an update is brought before the test has failed."""
PATIENCE_S = 60.0
JSON = {"Content-Type": "application/json"}


@dataclass
class Relay:
    """Between Telegram and one gateway: it can lose answers."""

    port: int
    """The gateway's."""
    lose: int = 0
    """How many of the next answers are lost, their connections closed instead."""
    lost: list[bytes] = field(default_factory=list)
    """The status lines of the answers that were."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        """Where Telegram brings updates."""
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/telegram"

    async def _accept(self, telegram: StreamReader, back: StreamWriter) -> None:
        """One request, for Telegram asks for no more on a connection."""
        # Cancelled by the end of the test, which is no error of this connection's task.
        with suppress(ConnectionError, asyncio.CancelledError):
            answers, gateway = await asyncio.open_connection("127.0.0.1", self.port)
            asking = asyncio.create_task(_copy(telegram, gateway))
            answer = await answers.read()
            asking.cancel()
            gateway.close()
            if answer and self.lose > 0:
                self.lose -= 1
                self.lost.append(answer.partition(b"\r\n")[0])
            else:
                back.write(answer)
        back.close()


async def _copy(source: StreamReader, target: StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await source.read(65536):
            target.write(data)


class Telegram:
    """Brings updates to one replica of the gateway after the other, and hears what is sent."""

    def __init__(self, relays: Sequence[Relay]) -> None:
        """`relays` may be filled later."""
        self._relays = relays
        self._attempts = itertools.count()
        self._updates = itertools.count(1000)
        self.secret = SECRET
        self.sent: list[dict[str, Any]] = []
        """The messages that were sent to chats."""
        self.hanging = asyncio.Event()
        """Set once a message has arrived whose answer is kept back."""
        self.hang = 0
        """How many of the next messages are heard and not answered."""
        self.api = ModelServer(answer=self._hear)

    async def __aenter__(self) -> Self:
        await self.api.start()
        self._http = httpx2.AsyncClient(
            headers={"Connection": "close"},
            timeout=PATIENCE_S,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()
        await self.api.aclose()

    def message(self, text: str, number: int, *, chat: int = 7, **more: Any) -> dict[str, Any]:
        """An update with a message, as the Bot API has it."""
        who = {"id": 5, "is_bot": False, "first_name": "Ann"}
        said = {
            "message_id": number,
            "from": who,
            "chat": {"id": chat, "type": "private", "first_name": "Ann"},
            "date": 1796041437,
            "text": text,
        }
        kind = "edited_message" if "edit_date" in more else "message"
        return {"update_id": next(self._updates), kind: {**said, **more}}

    async def bring(self, update: dict[str, Any]) -> list[str]:
        """Bring an update until it is answered with 2xx; what the attempts came to."""
        came_to: list[str] = []
        while not came_to or not came_to[-1].startswith("2"):
            assert len(came_to) < MOST, came_to
            came_to.append(await self.try_once(update))
        return came_to

    async def try_once(self, update: dict[str, Any]) -> str:
        """One attempt, at the replica whose turn it is: a status, or `lost`."""
        try:
            relay = self._relays[next(self._attempts) % len(self._relays)]
            told = {"X-Telegram-Bot-Api-Secret-Token": self.secret}
            answer = await self._http.post(relay.url, json=update, headers=told)
        except httpx2.TransportError:
            return "lost"
        came_to = str(answer.status_code)
        if "Retry-After" in answer.headers:
            came_to += f", after {answer.headers['Retry-After']} s"
        return came_to

    def _hear(self, request: Request) -> Reply:
        assert request.path == f"/bot{TOKEN}/sendMessage", request.path
        self.sent.append(request.body)
        if self.hang > 0:
            self.hang -= 1
            self.hanging.set()
            return Reply(then="hang", head=False)
        told = {"ok": True, "result": {"message_id": 100 + len(self.sent)}}
        return Reply(json.dumps(told), headers=JSON)

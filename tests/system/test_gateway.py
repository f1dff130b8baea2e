"""The chat gateway and its bot as they are in examples/, before a Telegram that brings updates
again and again: replicas, workers and Redis are real, and are killed."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from changeover import Client, Ending, Operator, SyncClient, TurnStarted
from tests.support.following import Seen
from tests.support.model_server import ModelServer, Reply, Request, sse
from tests.support.processes import COMMAND, Process, Processes, processes, wait_until
from tests.support.promises import Sent, broken, violations
from tests.support.proxy import proxy_before
from tests.support.servers import running_server
from tests.support.telegram import SECRET, TOKEN, Relay, Telegram
from tests.support.working import eventually, eventually_found

BOT = "examples.telegram_bot:app"
QUICK = {"CHANGEOVER_LEASE": "3s", "CHANGEOVER_RENEW": "1s", "CHANGEOVER_MARGIN": "0.5s"}
CHAT = "telegram:7"
TEXTS = ("Is the ferry", "to Oslo", "on time today?")
ANSWER = "It is, from quay 3."
QUIET_MS = 1500


class Provider:
    """A model that gives one answer, and can stop in the middle of it."""

    def __init__(self) -> None:
        self.hang = 0
        """In how many of the next answers it stops half way."""
        self.server = ModelServer(answer=self._answer)

    @property
    def asked(self) -> list[list[str]]:
        """What people had said, request by request."""
        return [
            [part["text"] for item in request.body["input"] if item.get("role") == "user"
             for part in _parts(item)]
            for request in self.server.requests
        ]  # fmt: skip

    def _answer(self, _: Request) -> Reply:
        said = {"type": "message", "id": "m", "role": "assistant"}
        content = [{"type": "output_text", "text": ANSWER, "annotations": []}]
        opened = {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**said, "content": []},
        }
        words = [
            {"type": "response.output_text.delta", "output_index": 0, "item_id": "m", "delta": word}
            for word in re.findall(r"\S+\s*", ANSWER)
        ]
        if self.hang > 0:
            self.hang -= 1
            return Reply(sse(opened, *words[:2]), then="hang")
        item = {**said, "content": content}
        done = {"type": "response.output_item.done", "output_index": 0, "item": item}
        response = {"id": "r", "status": "completed", "output": [item], "usage": None}
        return Reply(
            sse(opened, *words, done, {"type": "response.completed", "response": response})
        )


def _parts(item: dict[str, Any]) -> list[dict[str, Any]]:
    content = item["content"]
    return [{"text": content}] if isinstance(content, str) else list(content)


@dataclass
class World:
    """Everything around the processes of a gateway and its bot."""

    url: str
    running: Processes
    telegram: Telegram
    provider: Provider
    relays: list[Relay]
    gateways: list[Process]
    operator: Operator

    def worker(self, name: str) -> Process:
        return self.running.start(f"worker-{name}", COMMAND, "worker", BOT, "--name", name, **QUICK)

    async def holder(self) -> str:
        """The worker that runs the chat's turn."""
        return (await self.operator.session(CHAT)).worker or ""

    async def bring(self, number: int, *, lose: int = 1) -> None:
        """Bring the chat's message, its first answers lost at whichever replica they come from."""
        for relay in self.relays:
            relay.lose = lose
        update = self.telegram.message(TEXTS[number - 1], number)
        came_to = await self.telegram.bring(update)
        assert came_to == ["lost"] * lose * len(self.relays) + ["202"]


def started_gateway(running: Processes, name: str, **environment: str) -> tuple[Process, int]:
    """A replica that takes updates, and its port."""
    args = ("-m", "uvicorn", "--app-dir", "examples", "gateway:api", "--port", "0")
    process = running.python(name, *args, TELEGRAM_SECRET=SECRET, **environment)

    def listening() -> re.Match[str] | None:
        assert process.popen.poll() is None, process.text
        return re.search(r"Uvicorn running on http://127\.0\.0\.1:(\d+)", process.text)

    wait_until(lambda: listening() is not None, f"{name} listens")
    found = listening()
    assert found is not None
    return process, int(found[1])


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Two replicas of the gateway, each behind a relay that can lose its answers."""
    async with AsyncExitStack() as stack:
        url = stack.enter_context(running_server())
        yield await stand(stack, tmp_path, url, [url, url])


async def stand(stack: AsyncExitStack, tmp_path: Path, url: str, seen_at: list[str]) -> World:
    """A world whose replicas reach Redis at `seen_at`."""
    provider = Provider()
    await stack.enter_async_context(provider.server)
    relays: list[Relay] = []
    telegram = Telegram(relays)
    await stack.enter_async_context(telegram)
    environment = {
        "CHANGEOVER_REDIS_URL": url,
        "OPENAI_BASE_URL": provider.server.url,
        "OPENAI_API_KEY": "none",
        "TELEGRAM_API": telegram.api.origin,
        "TELEGRAM_TOKEN": TOKEN,
    }
    running = stack.enter_context(processes(tmp_path, environment))
    replicas: list[Process] = []
    for number, where in enumerate(seen_at):
        process, port = started_gateway(running, f"gateway-{number}", CHANGEOVER_REDIS_URL=where)
        replicas.append(process)
        relays.append(await stack.enter_async_context(Relay(port)))
    operator = await stack.enter_async_context(Operator(url))
    return World(url, running, telegram, provider, relays, replicas, operator)


async def follow(url: str, until: str, seen: Seen, news: list[Any]) -> None:
    """See the chat from its beginning until a message has ended."""
    async with Client(url) as client:
        async for event in client.follow(CHAT, after="start", until=until):
            seen.note(event)
            news.append(event)


def sent(*numbers: int) -> list[Sent]:
    return [Sent(CHAT, f"{CHAT}:{number}", TEXTS[number - 1]) for number in numbers]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("dies", ["in the model step", "while the answer is sent"])
async def test_three_quick_messages_retries_and_a_killed_worker_are_one_turn_and_one_outcome(
    world: World, dies: str
) -> None:
    """Whatever Telegram repeats, to whichever replica, and whoever ends the turn. An answer that a
    worker was sending when it died is sent again, which its step asks for."""
    workers = {name: world.worker(name) for name in ("a", "b")}
    world.provider.hang = int(dies == "in the model step")
    world.telegram.hang = int(dies == "while the answer is sent")
    # Held until all three are there, so that no slow machine makes two turns of them.
    await world.operator.pause("assistant")
    await world.bring(1)
    seen, events = Seen(), list[Any]()
    following = asyncio.create_task(follow(world.url, f"{CHAT}:1", seen, events))
    await world.bring(2)
    await world.bring(3)
    assert (await world.operator.session(CHAT)).inbox == 3
    await world.operator.resume("assistant")

    async def in_the_turn() -> bool:
        if dies == "in the model step":
            return bool((await world.operator.view(CHAT)).text)
        return world.telegram.hanging.is_set()

    await eventually_found(in_the_turn, f"a worker is {dies}")
    holder = await world.holder()
    workers[holder.partition(":")[0]].kill()
    outcomes = [await world.operator.wait(CHAT, f"{CHAT}:{n}", timeout="60s") for n in (1, 2, 3)]
    await asyncio.wait_for(following, 30)
    again = await world.telegram.bring(world.telegram.message(TEXTS[1], 2))
    assert again == ["202"]

    (turn,) = (await world.operator.turns(CHAT)).items
    assert (turn.submission_ids, turn.ending) == (
        tuple(f"{CHAT}:{n}" for n in (1, 2, 3)),
        Ending.COMPLETED,
    )
    assert (turn.text, turn.reply_to, turn.takeovers) == (ANSWER, ("telegram",), 1)
    assert {
        (one.ending, one.turn_id, one.text, one.reply_to, one.takeovers) for one in outcomes
    } == {(Ending.COMPLETED, turn.turn_id, ANSWER, ("telegram",), 1)}
    asked = 2 if dies == "in the model step" else 1
    assert world.provider.asked == [list(TEXTS)] * asked
    said = {"chat_id": "7", "text": ANSWER}
    assert world.telegram.sent == [said] * (1 if dies == "in the model step" else 2)

    session = await world.operator.session(CHAT)
    assert (session.inbox, session.status, dict(session.context)) == (0, "idle", {"chat": "7"})
    with SyncClient(world.url) as client:
        assert violations(client, sent(1, 2, 3)) == []
    assert broken(events, sent(1, 2, 3)) == [] and seen.found() == [] and seen.told == []
    started = [event for event in events if isinstance(event, TurnStarted)]
    last = max(event.at_ms for event in events if event.type == "message")
    assert [event.at_ms - last >= QUIET_MS for event in started] == [True]


@pytest.mark.timeout(120)
async def test_a_replica_killed_between_acceptance_and_its_answer_accepts_once(
    tmp_path: Path,
) -> None:
    async with AsyncExitStack() as stack:
        url = stack.enter_context(running_server())
        proxy = stack.enter_context(proxy_before(url))
        world = await stand(stack, tmp_path, url, [proxy.url, url])
        proxy.withhold_next("ACCEPTED")
        update = world.telegram.message(TEXTS[0], 1)
        first = asyncio.create_task(world.telegram.try_once(update))
        await eventually(lambda: bool(proxy.lost), "Redis has accepted the message")
        assert not first.done()
        world.gateways[0].send(signal.SIGKILL)
        assert await first == "lost"
        assert await world.telegram.bring(update) == ["202"]

        world.worker("a")
        outcome = await world.operator.wait(CHAT, f"{CHAT}:1", timeout="60s")
        assert (outcome.ending, outcome.text) == (Ending.COMPLETED, ANSWER)
        assert len((await world.operator.turns(CHAT)).items) == 1
        with SyncClient(url) as client:
            assert violations(client, sent(1)) == []


@pytest.mark.timeout(120)
async def test_a_full_inbox_and_an_outage_are_told_so_that_telegram_comes_back(
    tmp_path: Path,
) -> None:
    """429 with a time, 503; and what can never be accepted is not brought again."""
    async with AsyncExitStack() as stack:
        url = stack.enter_context(running_server())
        proxy = stack.enter_context(proxy_before(url))
        world = await stand(stack, tmp_path, url, [proxy.url])
        bring, message = world.telegram.try_once, world.telegram.message
        for number in range(1, 65):
            assert await bring(message(f"number {number}", number)) == "202"
        full = message("one too many", 65)
        assert await bring(full) == "429, after 1 s"
        assert await bring(message("Hello", 1, chat=8)) == "202"
        assert await bring(message("other words", 1, chat=8)) == "202"
        assert (await world.operator.session("telegram:8")).inbox == 1

        proxy.swallow()
        assert await bring(message("Hello", 2, chat=8)) == "503"


@pytest.mark.timeout(120)
async def test_an_edit_takes_the_place_of_what_waits_and_stop_ends_what_runs(world: World) -> None:
    """Each of them brought again and again; what comes too late, or to nobody, changes nothing."""
    bring, message = world.telegram.bring, world.telegram.message
    edited = f"{CHAT}:1:5"

    async def ending(id: str) -> Ending:
        return (await world.operator.wait(CHAT, id, timeout="60s")).ending

    world.worker("a")
    await world.operator.pause("assistant")
    await bring(message("Is the fery late?", 1))
    for _ in range(3):
        await bring(message("Is the ferry late?", 1, edit_date=5))
    assert (await world.operator.session(CHAT)).inbox == 1
    await world.operator.resume("assistant")
    assert [await ending(id) for id in (f"{CHAT}:1", edited)] == ["cancelled", "completed"]
    assert world.provider.asked == [["Is the ferry late?"]]

    world.provider.hang = 1
    await bring(message("And the bus?", 2))
    await eventually(lambda: len(world.provider.asked) == 2, "the model is asked again")
    await bring(message("And the tram?", 2, edit_date=9))
    for _ in range(3):
        await bring(message("/stop", 3))
    assert await ending(f"{CHAT}:2") is Ending.ABORTED
    await bring(message("And the tram?", 2, edit_date=9))
    await bring(message("Thanks", 4))
    assert await ending(f"{CHAT}:4") is Ending.COMPLETED
    endings = [turn.ending for turn in (await world.operator.turns(CHAT)).items]
    assert endings == ["completed", "aborted", "completed"]
    assert world.telegram.sent == [{"chat_id": "7", "text": ANSWER}] * 2

    before = (await world.operator.session(CHAT)).seq
    assert await bring(message("/stop", 1, chat=8)) == ["202"]
    assert await bring({"update_id": 1, "my_chat_member": {"chat": {"id": 8}}}) == ["202"]
    assert [s.session_id for s in (await world.operator.sessions()).items] == [CHAT]
    assert (await world.operator.session(CHAT)).seq == before


async def test_an_edit_that_comes_before_its_message_is_taken_instead_of_it(world: World) -> None:
    """The message was `Busy`, or Redis was away: Telegram brings it again behind its edit."""
    bring, message = world.telegram.bring, world.telegram.message
    day = 24 * 3600
    await world.operator.pause("assistant")
    old = message("Is the fery late?", 1)
    sent = old["message"]["date"]
    for edit in (sent + 30, sent + 2 * day):
        await bring(message("Is the ferry late?", 1 if edit < sent + day else 2, edit_date=edit))
    for _ in range(2):
        await bring(old)
    world.worker("a")
    await world.operator.resume("assistant")
    found = await world.operator.wait(CHAT, f"{CHAT}:1", timeout="60s")
    assert found.ending is Ending.COMPLETED
    assert world.provider.asked == [["Is the ferry late?"]]
    assert len((await world.operator.turns(CHAT)).items) == 1


async def test_who_does_not_know_the_secret_is_not_listened_to(world: World) -> None:
    world.telegram.secret = "guessed"
    assert await world.telegram.try_once(world.telegram.message("Hello", 1)) == "403"
    assert (await world.operator.sessions()).items == ()

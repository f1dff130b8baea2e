"""A fleet that encrypts: what its Redis, and what that has written to its disk, can tell."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from changeover import Attachment, Client, Message, Operator, SyncClient, TurnFailed
from changeover_shared._store.executor import Executor
from changeover_worker import Agent, App, Compaction, ModelRequest, Turn, TurnContext, tool
from changeover_worker._compaction import SUMMARISE
from changeover_worker.testing import ScriptedModel, call, fail, say
from changeover_worker.testing._snapshot import every_key
from tests.support.payload_keys import KeyFiles
from tests.support.processes import COMMAND, Process, processes
from tests.support.servers import SERVERS, server_process
from tests.support.storms import SHORT_LEASE, environment
from tests.support.working import working

pytestmark = pytest.mark.timeout(180)

MARK = "secret"
"""What every text that somebody said, or that was made of it, begins with: `secret-<what>-1a2b`."""


def secret(what: str) -> str:
    return f"{MARK}-{what}-1a2b"


@tool(effect="once")
async def look(question: str) -> str:
    """Look something up."""
    return f"{secret('result')} for {question}"


def answer(request: ModelRequest) -> Any:
    asked = getattr(request.items[-1], "text", "")
    if request.instructions == SUMMARISE:
        return say(secret("summary"))
    if "fail" in asked:
        return fail("provider_request", secret("error"))
    if "look" in asked:
        return call("look", question=secret("argument"))
    if "hang" in asked:
        return say(secret("streamed") + " " + "slowly " * 10_000)
    return say(secret("answer") + " y" * 300)


async def instructions(turn: TurnContext[Any]) -> str:
    return f"{secret('instructions')} {turn.context}"


app = App(
    models={
        "main": ScriptedModel.by(answer, chunk=40, pause=0.001),
        secret("model"): ScriptedModel.by(answer),
    },
    agents=[
        Agent(
            "assistant", model="main", tools=[look], instructions=instructions,
            compaction=Compaction(at_tokens=600, keep_tokens=50),
        )
    ],
)  # fmt: skip


@app.handler("form")
async def form(turn: Turn[Any]) -> dict[str, str]:
    """A turn in Python."""

    async def work() -> dict[str, str]:
        return {"found": secret("step")}

    async def broken() -> None:
        raise ValueError(secret("raised"))

    await turn.step(secret("stepname"), work)
    await turn.say(secret("said"))
    if "broken" in turn.text:
        await turn.step("broken", broken)
    return {"output": secret("output")}


async def everything(client: Client) -> None:
    """Let a session go through whatever takes or makes text."""
    attached = Attachment(url=f"https://e.org/{secret('url')}", name=secret("file"))
    first = Message(secret("message"), attachments=(attached,), author=secret("author"))
    await client.run(
        "s:1", first, id="m:1",
        context={"chat": secret("context")}, metadata={"note": secret("metadata")},
    )  # fmt: skip
    await client.run("s:1", f"look {secret('question')}", model=secret("model"))
    for n in range(4):
        await client.run("s:1", f"{secret('more')} {n} " + "z" * 600)
    await client.compact("s:1")
    with pytest.raises(TurnFailed, match=secret("error")):
        await client.run("s:1", "fail", model="main")
    hanging = await client.submit("s:1", f"hang {secret('hanging')}")
    async for event in client.follow("s:1", after="start"):
        if event.type == "delta" and "slowly" in getattr(event, "text", ""):
            break
    waiting = await client.submit("s:1", secret("waiting"))
    await client.interrupt("s:1", reason=secret("reason"))
    await client.wait("s:1", hanging.submission_id)
    await client.wait("s:1", waiting.submission_id)
    await client.run("s:2", secret("form"), agent="form")
    with pytest.raises(TurnFailed):
        await client.run("s:2", f"broken {secret('form')}")
    closed = await client.close_session("s:2", reason=secret("closing"))
    await client.wait("s:2", closed.submission_id)
    await client.resume_session("s:1", "s:2")
    await client.submit("s:3", secret("deleted"), agent="nobody")
    assert await client.delete("s:3", reason=secret("deletion"))
    await client.schedule(
        "s", "s:5", secret("schedule"), cron="0 0 1 1 *", context={"to": secret("to")}
    )
    # What is left: one that waits, for ever, and one that was interrupted before anybody took it.
    await client.submit("s:4", secret("unread"), agent="nobody")


async def told(operator: Operator) -> str:
    """Whatever a client can read of the sessions."""
    found: list[object] = [await operator.sessions(), await operator.schedules()]
    for session in ("s:1", "s:2", "s:4"):
        found.append(await operator.view(session))
        found += [
            await operator.events(session, limit=1000),
            await operator.transcript(session, limit=1000),
            await operator.turns(session, limit=1000),
            await operator.explain(session),
        ]
    return repr(found)


async def written(executor: Executor, directory: Path) -> dict[str, bytes]:
    """All that Redis has, in memory and on its disk, and what it noted of slow commands."""
    places = {"memory": repr(await every_key(executor)).encode()}
    places["slow commands"] = repr(await executor.command("SLOWLOG", "GET", -1)).encode()
    return places | files_in(directory)


def files_in(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@asynccontextmanager
async def on_server(kind: str) -> AsyncIterator[tuple[str, Path, Executor]]:
    """A server that writes down all it does."""
    flags = ["--appendonly", "yes", "--slowlog-log-slower-than", "0", "--slowlog-max-len", "100000"]
    with server_process(kind, flags) as server:
        executor = await Executor.connect(server.url)
        try:
            yield server.url, server.directory, executor
        finally:
            await executor.aclose()


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("encrypted", [True, False])
async def test_nothing_that_was_said_is_in_redis(
    kind: str, encrypted: bool, tmp_path: Path
) -> None:
    """And the same without keys finds it all, so that the search is known to find."""
    settings = KeyFiles(tmp_path).settings(*["old"] * encrypted)
    async with on_server(kind) as (url, directory, executor):
        async with working(app, settings, url), Operator(url, settings=settings) as operator:
            await everything(operator)
            read = await told(operator)
        places = await written(executor, directory)
    shown = {
        "message", "author", "url", "file", "context", "metadata", "question", "model", "more",
        "hanging", "waiting", "reason", "form", "closing", "unread", "argument", "result",
        "answer", "error", "streamed", "step", "stepname", "said", "raised", "output",
        "schedule",
    }  # fmt: skip
    found = set(re.findall(rf"{MARK}-([a-z]+)-1a2b", read))
    assert shown - {"unread"} <= found, "what a client with the key is shown"
    everywhere = {
        place: sorted(set(re.findall(rf"{MARK}-([a-z]+)-1a2b".encode(), content)))
        for place, content in places.items()
    }
    if encrypted:
        assert {place: names for place, names in everywhere.items() if names} == {}
        assert any(b"s:1" in content for content in places.values())
    else:
        in_redis = {name.decode() for names in everywhere.values() for name in names}
        assert {*shown, "summary", "deleted", "deletion", "to"} <= in_redis
        assert everywhere["slow commands"]


@pytest.mark.parametrize("kind", SERVERS)
async def test_a_worker_that_is_killed_is_followed_by_one_with_the_rotated_keys(
    kind: str, tmp_path: Path
) -> None:
    keys = KeyFiles(tmp_path)
    with server_process(kind) as server, processes(tmp_path, {}) as running:

        def worker(name: str, *key_names: str) -> Process:
            told = {"partitions": "4", "payload_keys": keys.named(*key_names), **SHORT_LEASE}
            given = environment(told, url=server.url)
            target = "tests.support.scripted_app:app"
            return running.python(name, "-m", "changeover_worker", target, **given)

        first = worker("first", "old")
        settings = keys.settings("old")
        async with Client(server.url, settings=settings) as client:
            await client.submit("s:1", secret("message"), agent="slow", id="m:1")
            async for event in client.follow("s:1", after="start"):
                if event.type == "delta":
                    break
            first.kill()
            worker("second", "new", "old")
            # It cannot finish, it is slow: that it goes on is what its steps tell.
            async for taken in client.follow("s:1", after=event.seq):
                if taken.type == "worker_changed":
                    break
            stopped = await client.interrupt("s:1")
            assert stopped.answer == "accepted"
        async with Client(server.url, settings=keys.settings("new", "old")) as client:
            outcome = await client.wait("s:1", "m:1", timeout="30s")
            assert outcome.ending == "aborted"
            (turn,) = (await client.turns("s:1")).items
            assert turn.submission_ids == ("m:1",)


def test_whoever_has_not_the_key_is_told_so_at_the_start(tmp_path: Path) -> None:
    keys = KeyFiles(tmp_path)
    with server_process() as server, processes(tmp_path, {}) as running:
        with SyncClient(server.url, settings=keys.settings("old")) as client:
            client.submit("s:1", secret("message"))
        for name, told in {"without": "", "wrong": keys.named("other", "new")}.items():
            given = environment({"payload_keys": told}, url=server.url)
            worker = running.python(
                name, "-m", "changeover_worker", "tests.support.scripted_app:app", **given
            )
            command = running.start(f"{name}-cli", COMMAND, "show", "s:1", **given)
            for process in (worker, command):
                assert process.popen.wait(30) == 78, process.text
                assert "fleet 'co' is encrypted with key 66687aadf862bd77" in process.text
                assert "add the file that holds it to CHANGEOVER_PAYLOAD_KEYS" in process.text
        right = environment({"payload_keys": keys.named("old", "new")}, url=server.url)
        command = running.start("right", COMMAND, "show", "s:1", "--events", **right)
        assert command.popen.wait(30) == 0, command.text
        assert secret("message") in command.text


def test_a_key_is_rotated_and_a_session_that_is_left_under_it_deleted(tmp_path: Path) -> None:
    keys = KeyFiles(tmp_path)
    with server_process() as server, processes(tmp_path, {}) as running:

        def told(code: int, names: Sequence[str], *command: str) -> str:
            given = environment({"payload_keys": keys.named(*names)}, url=server.url)
            process = running.start("cli", COMMAND, *command, **given)
            assert process.popen.wait(30) == code, process.text
            return process.text

        told(0, ["old"], "submit", "s:1", secret("message"))
        old, new = "66687aadf862bd77", "72cd6e8422c407fb"
        assert old in told(0, ["old", "new"], "payload-keys")
        listed = told(0, ["new", "old"], "payload-keys")
        assert [line.split()[0] for line in listed.splitlines()] == ["KEY", old, new]
        assert old in told(78, ["new"], "show", "s:1")
        assert "deleted" in told(0, ["new"], "delete", "s:1", "--yes")
        assert old not in told(0, ["new"], "payload-keys")

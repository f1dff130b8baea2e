"""Users of `changeover acl`: enough for everything that a role does, and for nothing else."""

from __future__ import annotations

import ast
import json
import shlex
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest
import redis
from redis.exceptions import NoPermissionError

from changeover import Client, Ending, Operator, ServerUnfit, UnknownWorker
from changeover._acl import COMMANDS, SCRIPTS, Role, acl_user
from changeover.cli import main
from changeover_shared._settings import Settings
from changeover_shared._store.keys import Keys
from tests.support.driving import due_since
from tests.support.fleet import small_settings
from tests.support.scripted_app import app
from tests.support.servers import SERVERS, running_server
from tests.support.working import eventually_found, working

ROOT = Path(__file__).resolve().parents[2]
PREFIX = "acl"
PASSWORD = "s3cret"
ROLES: tuple[Role, ...] = get_args(Role)


@dataclass
class Fenced:
    """A server on which nobody but an administrator and the three roles may do anything."""

    admin: redis.Redis
    url: str

    def of(self, role: Role) -> str:
        """The URL of a role."""
        return self.url.replace("redis://", f"redis://{PREFIX}-{role}:{PASSWORD}@")

    def client(self, role: Role) -> redis.Redis:
        """A bare connection of a role."""
        return redis.Redis.from_url(self.of(role))

    @property
    def denied(self) -> set[str]:
        """The commands that were refused so far."""
        log = self.admin.acl_log(count=1000)
        return {str(entry["object"]) for entry in log}


@pytest.fixture(params=SERVERS)
def fenced(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Fenced]:
    """The users are made of what the command prints, and the default user is off."""
    monkeypatch.setenv("CHANGEOVER_PREFIX", PREFIX)
    with running_server(request.param, ["--appendonly", "yes"]) as url:
        with closing(redis.Redis.from_url(url)) as first:
            for role in ROLES:
                assert main(["acl", role]) == 0
                line = shlex.split(capsys.readouterr().out)
                sent(first, *[w.replace("PASSWORD", PASSWORD) for w in line])
            first.acl_setuser(
                "admin", enabled=True, passwords=["+a"], keys=["*"], commands=["+@all"]
            )
        with closing(redis.Redis.from_url(url.replace("redis://", "redis://admin:a@"))) as admin:
            admin.acl_setuser("default", enabled=False)
            yield Fenced(admin, url)


def sent(client: redis.Redis, *args: str) -> Any:
    """The answer to a command as it is."""
    return client.execute_command(*args)  # type: ignore[no-untyped-call]


def settings(**given: Any) -> Settings:
    return small_settings(prefix=PREFIX, agent="assistant", **given)


@pytest.mark.parametrize("durability", ["memory", "fsync"])
async def test_each_role_does_all_that_it_is_for(fenced: Fenced, durability: str) -> None:
    told = settings(durability=durability if _knows_waitaof(fenced) else "memory")
    async with (
        working(app, told, fenced.of("worker")) as at_work,
        Client(fenced.of("producer"), settings=told) as producer,
    ):
        receipt = await producer.submit("web:1", "hello")
        assert (await producer.wait("web:1", receipt.submission_id)).ending is Ending.COMPLETED
        seen = [
            one.type async for one in producer.follow("web:1", after=0, until=receipt.submission_id)
        ]
        assert seen[-1] == "turn_completed"
        slow = await producer.submit("web:2", "hello", agent="slow")
        await eventually_found(
            lambda: _status_is(producer, "web:2", "running"), "the slow session runs"
        )
        await producer.interrupt("web:2")
        assert (await producer.wait("web:2", slow.submission_id)).ending is Ending.ABORTED
        later = await producer.submit("web:3", "hello", agent="nobody")
        assert (await producer.cancel("web:3", later.submission_id)).answer == "cancelled"
        await producer.compact("web:1")
        await producer.sessions()
        await producer.schedule("daily", "web:4", "hello", every="1h")
        await fires_now(fenced, "daily")
        await eventually_found(lambda: _is_there(producer, "web:4"), "it was sent")
        assert [one.name for one in (await producer.schedules()).items] == ["daily"]
        assert await producer.unschedule("daily")
        await producer.transcript("web:1")
        await producer.turns("web:1")
        await producer.view("web:1")
        await _operates(Operator(fenced.of("operator"), settings=told))
        assert await producer.delete("web:3")
        async with Operator(fenced.of("operator"), settings=told) as operator:
            told_last = [one async for one in operator.drain(at_work.worker.incarnation)][-1]
            assert told_last.state == "drained"
        await at_work.task
    assert fenced.denied <= {"config|get"}, "only what a start does without"


async def _is_there(client: Client, session: str) -> bool:
    return any(one.session_id == session for one in (await client.sessions()).items)


async def fires_now(fenced: Fenced, name: str) -> None:
    """Let a schedule be due."""
    keys = Keys(PREFIX, 4).schedules
    value = fenced.admin.hget(keys.by_name, name)
    assert isinstance(value, bytes)
    fenced.admin.hset(keys.by_name, name, due_since(value, 1))
    fenced.admin.zadd(keys.due, {name: 1})


async def _status_is(client: Client, session: str, status: str) -> bool:
    return (await client.session(session)).status == status


async def _operates(operator: Operator) -> None:
    async with operator:
        assert [one.state for one in await operator.workers()] == ["running"]
        assert (await operator.explain("web:1")).code == "idle"
        assert await operator.reroute("web:1", "other")
        await operator.pause("later")
        assert {one.queue for one in await operator.queues()} >= {"assistant", "later"}
        async for glance in operator.watch():
            assert [one.error for one in glance.servers] == [None]
            break
        assert await operator.resume("later")
        await operator.purge(closed_for="0s", idle_for="0s", dry_run=True)
        await operator.purge(closed_for="1h")
        await operator.submit("web:9", "hello", agent="nobody")
        assert await operator.delete("web:9")
        with pytest.raises(UnknownWorker):
            await operator.evict("nobody")
        report = await operator.doctor(deep=True)
        codes = {one.code: one for one in report.findings}
        assert "not_seen" not in codes
        assert codes["deep"].text.endswith("no key without an owner, every index agrees")


def _knows_waitaof(fenced: Fenced) -> bool:
    return "waitaof" in fenced.admin.command()


FORBIDDEN = {
    "FLUSHALL": (), "FLUSHDB": (), "KEYS": ("*",), "CONFIG": ("SET", "maxmemory", "1"),
    "ACL": ("LIST",), "CLIENT": ("KILL", "ID", "1"), "CLIENT LIST": (), "SHUTDOWN": (),
    "REPLICAOF": ("NO", "ONE"), "SAVE": (), "MONITOR": (),
    "SCRIPT": ("FLUSH",), "FUNCTION": ("FLUSH",), "EVAL": ("return 1", "0"), "DEL": ("other:x",),
    "PUBLISH": ("x", "y"), "SWAPDB": ("0", "1"),
}  # fmt: skip


@pytest.mark.parametrize("role", ROLES)
def test_no_role_does_what_concerns_the_server_or_others(fenced: Fenced, role: Role) -> None:
    fenced.admin.set("other:x", "kept")
    fenced.admin.set("{other:1}:meta", "kept")
    with closing(fenced.client(role)) as client:
        for name, args in FORBIDDEN.items():
            if (role, name) == ("worker", "CLIENT LIST"):
                continue  # By which workers notice the death of others.
            with pytest.raises(NoPermissionError):
                sent(client, *name.split(), *args)
        for key in ("other:x", "{other:1}:meta", f"{PREFIX}x:config"):
            for command in (("GET", key), ("SET", key, "lost"), ("HGETALL", key)):
                with pytest.raises(NoPermissionError):
                    sent(client, *command)
    assert fenced.admin.get("other:x") == fenced.admin.get("{other:1}:meta") == b"kept"


@pytest.mark.parametrize("role", ROLES)
def test_a_script_of_ones_own_reaches_no_further(fenced: Fenced, role: Role) -> None:
    """Also keys that a script does not declare, and commands that the role has not.

    Hole 59: the commands inside a script need the rights of who runs it.
    """
    fenced.admin.set("other:x", "kept")
    with closing(fenced.client(role)) as client:
        for text in (
            "return redis.call('SET', 'other:x', 'lost')",
            "return redis.call('FLUSHALL')",
        ):
            sha = client.script_load(text)
            with pytest.raises((NoPermissionError, redis.ResponseError), match=_REFUSED):
                client.evalsha(sha, 0)
    assert fenced.admin.get("other:x") == b"kept"


_REFUSED = "permission|can't access|can't run"


def test_a_producer_neither_registers_as_a_worker_nor_claims(fenced: Fenced) -> None:
    keys = Keys(PREFIX, 4)
    with closing(fenced.client("producer")) as client:
        for command in (
            ("HSET", keys.workers, "w", "{}"),
            ("SET", keys.sweep, "me"),
            ("SET", keys.order("w:00000000"), "{}"),
            ("BZPOPMIN", keys.bell("assistant@1"), "0.1"),
            ("SCAN", "0"),
        ):
            with pytest.raises(NoPermissionError):
                sent(client, *command)
    with closing(fenced.client("operator")) as client:
        assert client.hgetall(keys.workers) == {}
        for command in (("SET", keys.sweep, "me"), ("BZPOPMIN", keys.bell("a@1"), "0.1")):
            with pytest.raises(NoPermissionError):
                sent(client, *command)


async def test_a_wrong_password_is_a_setup_that_a_person_must_mend(fenced: Fenced) -> None:
    url = fenced.of("producer").replace(PASSWORD, "other")
    with pytest.raises(ServerUnfit, match="password"):
        await Client(url, settings=settings()).submit("web:1", "hello")


def test_the_name_is_chosen_and_the_json_has_the_rules(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHANGEOVER_PREFIX", PREFIX)
    assert main(["acl", "worker", "--user", "w.1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == acl_user("worker", PREFIX, "w.1").model_dump(mode="json")
    assert (told["user"], told["rules"][:3]) == ("w.1", ["reset", "on", "resetchannels"])
    assert main(["acl", "worker", "--user", "two words"]) == 2


# What is sent is read from the source, so that a new command cannot be forgotten here.

MEANT_OTHERWISE = {"hdel", "zrem", "type"}
"""Words in the sources that look like commands: what a finding tells a person to type, and which
connections are listed."""
COMMON = ("fleet", "barrier", "fsync", "replication", "servers", "executor", "wire")
SOURCES: dict[Role, tuple[str, ...]] = {
    "producer": ("store", "agent_policies", "schedules"),
    "worker": ("lease_store", "schedules", "eviction", "orders"),
    "operator": ("store", "upkeep", "quarantine", "schedules", "eviction", "orders"),
}
DOCTORS = ("_doctor", "_deep", "_session_look", "_partition_look", "_index_look")


def _trees(role: Role) -> Iterator[ast.Module]:
    store = ROOT / "shared/changeover_shared/_store"
    names = [store / f"{name}.py" for name in (*COMMON, *SOURCES[role])]
    if role == "worker":
        names += [
            ROOT / f"worker/changeover_worker/_process/{one}.py" for one in ("sweep", "watch")
        ]
    if role == "operator":
        names += [ROOT / f"producer/changeover/{name}.py" for name in DOCTORS]
    for path in names:
        yield ast.parse(path.read_text("utf-8"))


@pytest.mark.parametrize("role", ROLES)
def test_every_command_of_the_source_is_permitted(role: Role) -> None:
    with running_server("valkey") as url, closing(redis.Redis.from_url(url)) as client:
        known = set(_words(client.command()))
        connecting = {name.split("|")[0] for name in _words(client.acl_cat("connection"))}
    permitted = {name.split("|")[0] for name in COMMANDS[role]} | connecting
    # What a start tries and does without.
    permitted |= {"config"}
    told = {
        node.value.lower()
        for tree in _trees(role)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isupper()
    }
    assert (told & known) - MEANT_OTHERWISE <= permitted
    unused = {name.split("|")[0] for name in COMMANDS[role]} - told
    assert unused <= {"evalsha"}, "the rest is what nobody sends"


@pytest.mark.parametrize("role", ROLES)
def test_every_script_of_the_source_is_permitted(role: Role) -> None:
    asked = {
        # What is done with limits is one script.
        "limit" if node.attr.endswith("_limit") else node.attr
        for tree in _trees(role)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "requests"
    }
    if role == "producer":
        asked.add("delete")
    if role == "worker":
        asked.add("submit")
    assert set(SCRIPTS[role]) == asked | {"init", "raise_epoch"}


def _words(names: Any) -> list[str]:
    return [name.decode() if isinstance(name, bytes) else str(name) for name in names]

"""The synchronous twin, from a thread without an event loop, on every target."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fakeredis
import pytest
from tools.generate_sync import main as generate

from changeover import (
    Busy,
    Delta,
    Ending,
    IdReused,
    Invalid,
    Receipt,
    StoreUnavailable,
    Submission,
    SyncClient,
    SyncOperator,
    TurnCompleted,
    TurnFailed,
    UnknownSession,
    WaitTimeout,
)
from changeover_shared._settings import Settings
from changeover_shared._store.executor import Executor
from changeover_shared._store.sync_executor import SyncExecutor
from changeover_shared._store.sync_fleet import SyncFleet
from changeover_shared._store.sync_store import SyncStore
from tests.support.acting import Acting
from tests.support.fleet import fake_executor, small_settings, stores_on
from tests.support.targets import TARGETS, Targets

pytestmark = pytest.mark.timeout(30)


@dataclass
class SyncWorld:
    """A synchronous client, and a worker acted in an event loop of its own."""

    client: SyncOperator
    settings: Settings
    url: str | None
    fake: fakeredis.FakeServer

    def act(self, session_id: str, text: str, *, failing: bool = False) -> None:
        """Take a session and answer it, or fail its turn."""
        asyncio.run(self._act(session_id, text, failing))

    async def _act(self, session_id: str, text: str, failing: bool) -> None:
        executor = await Executor.connect(self.url) if self.url else fake_executor(self.fake)
        async with stores_on(executor, self.settings) as stores:
            acting = Acting(stores.worker)
            if not failing:
                await acting.answer(session_id, text)
                return
            held = await acting.take(session_id)
            await held.start()
            await held.fail(text)


@pytest.fixture(params=TARGETS)
def world(request: pytest.FixtureRequest, targets: Targets) -> Iterator[SyncWorld]:
    settings = small_settings(agent="assistant")
    fake = fakeredis.FakeServer()
    if request.param == "fakeredis":
        client = SyncOperator("redis://nowhere.invalid", settings=settings)
        executor = SyncExecutor.given(
            fakeredis.FakeRedis(server=fake, protocol=2),
            fakeredis.FakeRedis(server=fake, protocol=2),
        )
        client._store = SyncStore(SyncFleet.join(executor, settings))
        url = None
    else:
        url = targets[request.param].url
        targets[request.param].flush()
        client = SyncOperator(url, settings=settings)
    with client:
        yield SyncWorld(client, settings, url, fake)


def test_a_message_is_submitted_answered_and_read_back(world: SyncWorld) -> None:
    receipt = world.client.submit("web:1", "hello", id="m:1")
    assert world.client.submit("web:1", "hello", id="m:1").answer == "duplicate"
    with pytest.raises(IdReused):
        world.client.submit("web:1", "other", id="m:1")
    world.act("web:1", "Hello.")
    outcome = world.client.wait("web:1", receipt.submission_id)
    assert (outcome.ending, outcome.text) == (Ending.COMPLETED, "Hello.")
    seen = list(world.client.follow("web:1", after="start", until="m:1"))
    assert isinstance(seen[-1], TurnCompleted)
    assert list(world.client.follow("web:1", after=seen[2].seq, until="m:1")) == seen[3:]
    assert world.client.view("web:1").messages[-1].text == "Hello."
    assert world.client.session("web:1").status == "idle"
    assert [item.n for item in world.client.transcript("web:1").items] == [2, 1]
    assert [event.seq for event in world.client.events("web:1", limit=2).items] == [8, 7]
    assert [turn.turn_id for turn in world.client.turns("web:1").items] == ["t_1"]
    assert [info.session_id for info in world.client.sessions().items] == ["web:1"]


def test_each_wrong_item_of_many_is_refused_in_its_place(world: SyncWorld) -> None:
    items: list[Any] = [1, ("web:1", "x"), Submission("web:1", "hello", id="m:1"), None]
    answers = list(world.client.submit_many(items))
    assert [getattr(answer, "code", "") for answer in answers] == [
        "invalid",
        "invalid",
        "",
        "invalid",
    ]
    assert answers[2].submission_id == "m:1"


def test_many_are_submitted_and_awaited(world: SyncWorld) -> None:
    limit = world.settings.max_inbox
    items = [Submission(f"web:{n % 2}", "hello", id=f"m:{n}") for n in range(2 * limit + 1)]
    answers = list(world.client.submit_many(items, in_flight=50))
    assert [answer.submission_id for answer in answers] == [item.id for item in items]
    receipts = [answer for answer in answers if isinstance(answer, Receipt)]
    assert len(receipts) == 2 * limit
    with pytest.raises(Busy):
        world.client.submit("web:0", "one too many")
    world.act("web:0", "Hello.")
    world.act("web:1", "Hello.")
    seen = list(world.client.wait_many(receipts[:2], timeout="10s"))
    assert {outcome.session_id for outcome in seen} == {"web:0", "web:1"}
    with pytest.raises(WaitTimeout):
        list(world.client.wait_many(receipts[2:3], timeout="0s"))


def test_a_stream_in_one_thread_sees_what_a_worker_does_meanwhile(world: SyncWorld) -> None:
    events = world.client.stream("web:1", "hello", id="m:1")
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(next, events)
        while not world.client.sessions().items:
            """The stream submits in its own thread."""
        world.act("web:1", "Hello.")
        seen = [first.result(), *events]
    assert isinstance(seen[-1], TurnCompleted)
    assert not any(isinstance(event, Delta) and event.text != "Hello." for event in seen)


def test_run_raises_the_ending_and_controls_are_answered(world: SyncWorld) -> None:
    with pytest.raises(WaitTimeout):
        world.client.run("web:1", "hello", id="m:1", timeout="0s")
    world.act("web:1", "401", failing=True)
    with pytest.raises(TurnFailed, match="401"):
        world.client.run("web:1", "hello", id="m:1")
    assert world.client.interrupt("web:1").answer == "no_turn"
    world.client.submit("web:1", "two", id="m:2")
    assert world.client.set_model("web:1", "fast").position == 1
    assert world.client.cancel("web:1", "m:2").answer == "cancelled"
    assert world.client.close_session("web:1").answer == "accepted"
    assert world.client.explain("web:1").code == "no_worker_for_queue"
    assert world.client.workers() == ()
    with pytest.raises(UnknownSession):
        world.client.session("web:2")


def test_threads_share_one_client(world: SyncWorld) -> None:
    def submit(number: int) -> str:
        return world.client.submit(f"web:{number % 5}", "hello", id=f"m:{number}").answer

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(submit, range(60))) == ["accepted"] * 60
    assert sum(info.inbox for info in world.client.sessions().items) == 60


def test_it_checks_before_it_connects_and_fails_at_once_when_redis_is_away() -> None:
    client = SyncClient("redis://127.0.0.1:1/0")
    with pytest.raises(Invalid):
        client.submit("web 1", "hello")
    with pytest.raises(StoreUnavailable):
        client.submit("web:1", "hello")
    with pytest.raises(StoreUnavailable), client:
        raise AssertionError("it was opened")
    client.close()
    with pytest.raises(Invalid, match="it is closed"):
        client.submit("web:1", "hello")


def test_the_twins_are_what_their_sources_say(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate(["--check"]) == 0, capsys.readouterr().out


def test_a_stale_twin_is_named_and_left_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "_thing.py").write_text("async def go() -> None:\n    await stop()\n")
    (package / "_sync_thing.py").write_text("old\n")
    monkeypatch.setattr("tools.generate_sync.ROOT", tmp_path)
    monkeypatch.setattr("tools.generate_sync.GENERATED", {"package": ("_thing",)})
    assert generate(["--check"]) == 1
    assert capsys.readouterr().out == "stale package/_sync_thing.py\n"
    assert (package / "_sync_thing.py").read_text() == "old\n"
    assert generate([]) == 0
    assert "def go() -> None:\n    stop()\n" in (package / "_sync_thing.py").read_text()
    assert generate(["--check"]) == 0


def test_a_source_that_cannot_be_synchronous_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "_thing.py").write_text("import asyncio\n\nasync def go():\n    asyncio.gather()\n")
    monkeypatch.setattr("tools.generate_sync.ROOT", tmp_path)
    monkeypatch.setattr("tools.generate_sync.GENERATED", {".": ("_thing",)})
    with pytest.raises(SystemExit, match=r"cannot be made synchronous: asyncio\.gather"):
        generate([])
    assert not (tmp_path / "_sync_thing.py").exists()


def test_times_are_the_same_without_await(world: SyncWorld) -> None:
    kept = world.client.schedule("daily", "web:1", "hello", cron="0 9 * * *", tz="Europe/Berlin")
    assert world.client.schedules().items == (kept,)
    assert (kept.cron, kept.text, kept.due_at.minute) == ("0 9 * * *", "hello", 0)
    assert world.client.unschedule("daily")
    assert not world.client.unschedule("daily")
    world.client.submit("web:2", "later", id="m1", delay="1h")
    assert "submission m1 until " in (world.client.session("web:2").waiting or "")
    with pytest.raises(WaitTimeout, match="it is due at"):
        world.client.wait("web:2", "m1", timeout="0s")


def test_a_fleet_is_watched_without_await(world: SyncWorld) -> None:
    world.client.submit("web:1", "hello")
    looks = world.client.watch(every="1ms")
    first, second = next(looks), next(looks)
    assert [(one.sessions, one.ready) for one in (first, second)] == [(1, 1), (1, 1)]
    assert first.at_ms <= second.at_ms

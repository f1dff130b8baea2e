"""A "no" that was told stays true: refusals count only once no earlier copy can run any more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from redis.exceptions import ConnectionError as LostConnection

from changeover_shared._errors import Busy, StoreUnavailable
from changeover_shared._store.calls import Call
from changeover_shared._store.executor import Executor
from changeover_shared._store.records import Create, Submit, Submitted
from changeover_shared._store.scripts import script
from changeover_shared._store.store import Store
from changeover_shared._store.sync_store import SyncStore
from changeover_shared._store.sync_wire import SyncWire
from tests.support.driving import ROUTE, SESSION
from tests.support.fleet import small_settings
from tests.support.servers import flush, running_server

SETTINGS = small_settings(max_inbox=1)


def message(id: str) -> Submit:
    return Submit(SESSION, id, f"d:{id}", "turn", "body", Create(ROUTE, "assistant"))


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with running_server() as url:
        yield url


@pytest.fixture(autouse=True)
def empty(server: str) -> None:
    flush(server)


def losing(pipeline: Callable[..., Any], steps: list[str]) -> Callable[..., Any]:
    """The same pipeline, whose next submissions fare as `steps` says."""

    def fare(wire: SyncWire, client: Any, commands: Sequence[Sequence[Any]], *claim: str) -> Any:
        fate = steps.pop(0) if steps and commands[0][0] == "EVALSHA" else "answered"
        if fate == "request lost":
            raise LostConnection(fate)
        answers = pipeline(wire, client, commands, *claim)
        if fate == "reply lost":
            raise LostConnection(fate)
        return answers

    return fare


def test_a_refusal_after_a_lost_attempt_is_asked_again(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hole 3, F4: the copy that was lost may be accepted after all."""
    store = SyncStore.open(server, SETTINGS)
    store.submit(message("m1"))
    steps = ["request lost", "answered", "answered"]
    monkeypatch.setattr(SyncWire, "_piped", losing(SyncWire._piped, steps))
    with pytest.raises(Busy):
        store.submit(message("m2"), timeout_s=0.5)
    assert steps == []
    store.close()


def test_a_refusal_that_was_never_in_doubt_counts_at_once(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SyncStore.open(server, SETTINGS)
    store.submit(message("m1"))
    steps = ["answered", "answered"]
    monkeypatch.setattr(SyncWire, "_piped", losing(SyncWire._piped, steps))
    with pytest.raises(Busy):
        store.submit(message("m2"))
    assert steps == ["answered"]
    store.close()


def test_a_lost_reply_is_answered_by_the_receipt(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SyncStore.open(server, small_settings())
    store.submit(message("m1"))
    monkeypatch.setattr(SyncWire, "_piped", losing(SyncWire._piped, ["reply lost"]))
    answer = store.submit(message("m2"))
    assert isinstance(answer, Submitted)
    assert (answer.word, answer.n) == ("DUPLICATE", 2)
    store.close()


def test_a_lost_connection_is_the_error_of_every_call_of_its_pipeline(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SyncStore.open(server, SETTINGS)
    monkeypatch.setattr(SyncWire, "_piped", losing(SyncWire._piped, ["request lost"]))
    nothing = Call(script("peek"), "k", lambda replid: (0, []))
    answers = store._fleet.executor.run_all([nothing] * 3)
    assert [type(answer) for answer in answers] == [StoreUnavailable] * 3
    store.close()


async def test_the_asynchronous_store_asks_again_as_well(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hole 3, F4."""
    store = await Store.open(server, SETTINGS)
    await store.submit(message("m1"))
    executor: Executor = store._fleet.executor
    run_all, tries = executor.run_all, 0

    async def lose_the_first(calls: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries == 1:
            return [StoreUnavailable(reason="lost") for _ in calls]
        return await run_all(calls)

    monkeypatch.setattr(executor, "run_all", lose_the_first)
    with pytest.raises(Busy):
        await store.submit(message("m2"), timeout_s=0.5)
    assert tries > 2
    await store.aclose()

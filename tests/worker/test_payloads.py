"""Workers and encrypted sessions: whoever has the keys goes on, whoever has not lets them be."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from changeover_shared._errors import PayloadError, PayloadKeyMissing
from changeover_shared._events import SessionResumeRequested
from changeover_shared._ops import InterruptOp, ResumeSessionOp
from changeover_shared._store.payloads import is_sealed
from changeover_shared._words import Ending
from changeover_worker import Agent, App, Compaction
from changeover_worker._session.runner import RunEnd
from changeover_worker._session.signals import Moment
from changeover_worker.testing import ScriptedModel, say, sweep
from tests.support.holding import Bench, bench
from tests.support.payload_keys import KeyFiles, joined
from tests.support.recovering import SECOND, app_of, checkpoint_of, die_at, no_model
from tests.support.scenarios import reporter, three_steps

THIRD = "w:00000003"


@pytest.fixture
def keys(tmp_path: Path) -> KeyFiles:
    return KeyFiles(tmp_path)


async def with_keys(on: Bench, keys: KeyFiles, *names: str, **given: Any) -> Bench:
    """The same session as processes see it that have these keys."""
    settings = keys.settings(*names, **given)
    return Bench(await joined(on.stores, settings), settings)


def unable(end: RunEnd) -> PayloadError:
    """Why a session was let be."""
    assert end.how == "unable" and isinstance(end.error, PayloadError)
    return end.error


def compacting(at_tokens: int = 400) -> App:
    """An app whose sessions soon have a summary for a beginning."""
    compaction = Compaction(at_tokens=at_tokens, keep_tokens=100)
    agent = Agent("bot", model="main", compaction=compaction)
    return App(agents=[agent], models={"main": ScriptedModel.always(say("y" * 200))})


async def talk(on: Bench, app: App, numbers: Iterable[int]) -> None:
    """A turn for each number, long enough that it is summarised after a few more."""
    for n in numbers:
        await on.submit(f"message {n} " + "z" * 400, f"m{n}")
        await on.run(app, f"w:{n + 100:08}")


async def state_of(on: Bench, reader: Bench) -> tuple[int, int, str, list[str]]:
    """What a worker that cannot read a session must not change."""
    head = await reader.stores.worker.read_head(on.session)
    assert head is not None
    return head.attempts, head.rev, head.turn, await reader.types()


async def test_a_takeover_by_a_worker_with_the_rotated_keys_goes_on(keys: KeyFiles) -> None:
    """The turn began under the old key, its end is written under the new one."""
    async with bench() as first:
        old = await with_keys(first, keys, "old")
        await old.submit("one")
        await die_at(old, app_of(ScriptedModel.always(say("never"))), Moment.STEP_STARTED)
        both = await with_keys(first, keys, "new", "old")
        assert (await both.run(app_of(ScriptedModel(say("yes"))), SECOND)).how == "released"
        assert await both.ending() is Ending.COMPLETED
        new = await with_keys(first, keys, "new")
        assert (await new.turns())[0].text == "yes"
        with pytest.raises(PayloadKeyMissing):
            await new.events()
        await both.submit("two", "m2")
        error = unable(await new.run(app_of(no_model()), THIRD))
        assert "an item of session 's' is encrypted" in str(error)


async def test_a_worker_without_the_key_lets_the_session_be(keys: KeyFiles) -> None:
    """It fails no turn and counts as no attempt, however often; then whoever has the key goes
    on."""
    async with bench() as without:
        mine = await with_keys(without, keys, "old")
        await mine.submit("one")
        await die_at(mine, app_of(ScriptedModel.always(say("never"))), Moment.STEP_STARTED)
        attempts, rev, turn, types = await state_of(without, mine)
        for n in range(7):
            end = await without.run(app_of(no_model()), f"w:0000001{n}")
            assert "add the file that holds it" in str(unable(end))
            await without.make_ready()
        # That another worker was granted it is told by the script, once.
        expected = (attempts, rev, turn, [*types, "worker_changed"])
        assert await state_of(without, mine) == expected
        assert (await mine.run(app_of(ScriptedModel(say("yes"))), SECOND)).how == "released"
        assert (await mine.turns())[0].text == "yes"


async def test_a_worker_says_which_key_it_needs(keys: KeyFiles) -> None:
    async with bench() as without:
        mine = await with_keys(without, keys, "old")
        await mine.submit("one")
        await without.run(app_of(no_model()))
        (entry,) = without.log.calls
        text = dict(entry.kwargs)["text"]
        assert "with key 66687aadf862bd77, which this process does not have" in text


async def test_an_interrupt_is_read_by_whoever_has_the_key(keys: KeyFiles) -> None:
    async with bench() as without:
        mine = await with_keys(without, keys, "old")
        await mine.submit("one")
        await die_at(mine, app_of(ScriptedModel.always(say("never"))), Moment.STEP_STARTED)
        await mine.submit(InterruptOp(reason="not now"), "i1")
        key = mine.stores.worker.keys.of("s").session("s", "head")
        assert is_sealed(await mine.stores.executor.command("HGET", key, "ctl_body"))
        assert "submission" in str(unable(await without.run(app_of(no_model()), SECOND)))
        await without.make_ready()
        await mine.run(app_of(no_model()), THIRD)
        assert (await mine.turns())[0].error is not None or await mine.ending() is Ending.ABORTED
        assert "not now" in [getattr(event, "reason", "") for event in await mine.events()]


async def test_a_rewritten_context_needs_its_key(keys: KeyFiles) -> None:
    """A summary is nothing that could be left out: the session waits for who can read it."""
    async with bench() as first:
        old = await with_keys(first, keys, "old")
        app = compacting(100_000)
        await talk(old, compacting(), range(4))
        epoch = (await checkpoint_of(old)).context_epoch
        assert epoch > 0
        both = await with_keys(first, keys, "new", "old")
        await both.submit("short", "m4")
        await both.run(app, SECOND)
        assert (await checkpoint_of(both)).context_epoch == epoch, "a new one would be under new"
        await both.submit("three", "m5")
        new = await with_keys(first, keys, "new")
        assert "a prefix of session 's'" in str(unable(await new.run(app, THIRD)))
        await first.make_ready()
        await both.run(app, "w:00000005")
        assert await both.ending("m5") is Ending.COMPLETED


async def test_another_session_that_is_damaged_holds_nobody_up(keys: KeyFiles) -> None:
    async with bench() as first:
        mine = await with_keys(first, keys, "old")
        mine.session = "target"
        await mine.submit("one")
        target = mine.stores.worker.keys.of("target").session("target", "head")
        of_another = mine.stores.worker._fleet.payloads.of("another").seal("context", '{"a": "b"}')
        await mine.stores.executor.command("HSET", target, "context", of_another)
        mine.session = "s"
        await mine.submit(ResumeSessionOp(target="target"), "r1")
        assert (await mine.run(app_of(no_model()))).how == "released"
        assert not any(isinstance(event, SessionResumeRequested) for event in await mine.events())
        assert await mine.ending("r1") is Ending.FAILED


async def test_retention_keeps_what_it_cannot_read_and_goes_on(keys: KeyFiles) -> None:
    """An old turn record is needed for nothing but to know how much may go."""
    async with bench() as first:
        app = compacting()
        old = await with_keys(first, keys, "old")
        await talk(old, app, range(4))
        both = await with_keys(first, keys, "new", "old")
        await talk(both, app, range(4, 8))
        head = await both.stores.worker.read_head("s")
        assert head is not None
        new = await with_keys(first, keys, "new")
        # The record of the third turn is the oldest to be kept, and nobody here can read it.
        new.settings = new.settings.model_copy(update={"turns_kept": head.turns - 2})
        await new.submit("next", "m8")
        end = await new.run(app, THIRD)
        assert end.how == "released", end.error
        after = await new.stores.worker.read_head("s")
        assert after is not None and after.first_turn == 3
        assert await new.ending("m8") is Ending.COMPLETED


async def test_a_fleet_that_encrypts_keeps_its_promises_wherever_its_worker_stops(
    keys: KeyFiles,
) -> None:
    report = await sweep(three_steps, reporter, settings=keys.settings("old"))
    assert report.cases > 20

"""A checkpoint is a frozen value: what is saved is never copied, and what was kept never moves."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import ValidationError

from changeover_shared._checkpoint import Checkpoint, decode_checkpoint
from changeover_shared._words import CommitKind
from changeover_worker._agent import Agent
from changeover_worker._session.commits import Commits
from changeover_worker._session.loaded import Loaded
from changeover_worker._session.recorder import Recorder
from changeover_worker._session.writer import Writer
from changeover_worker._turn.draft import Draft
from tests.support.holding import Bench, bench, until
from tests.support.recording import Gated


class Counted(dict[str, Any]):
    """A payload that counts how often it is copied."""

    copies = 0

    def __copy__(self) -> Counted:
        Counted.copies += 1
        return Counted(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Counted:
        Counted.copies += 1
        return Counted(self)

    def copy(self) -> Counted:
        Counted.copies += 1
        return Counted(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        Counted.copies += 1
        return super().__reduce_ex__(protocol)


@dataclass
class Saving:
    on: Bench
    store: Gated
    loaded: Loaded
    commits: Commits

    def changed(self, checkpoint: Checkpoint, **metadata: Any) -> Draft:
        """The commit of a checkpoint whose metadata has changed."""
        update = {"metadata": {**checkpoint.metadata, **metadata}}
        return Draft(CommitKind.STEP, "t_1", checkpoint.model_copy(update=update), progress=True)

    async def stored(self) -> Checkpoint:
        body = await self.on.stores.worker.read_checkpoint("s")
        assert body is not None
        return decode_checkpoint(body, session_id="s")


def begun(checkpoint: Checkpoint) -> Draft:
    """The commit that begins a turn, with a payload."""
    metadata = {"payload": Counted(text="x" * 100_000)}
    first = checkpoint.model_copy(update={"metadata": metadata})
    return Draft(CommitKind.START, "t_1", first, take=(1,))


@asynccontextmanager
async def saving() -> AsyncIterator[Saving]:
    """A held session whose turn has begun with a payload in its checkpoint."""
    async with bench() as on:
        await on.submit("hello")
        grant = await on.claim()
        held = on.hold(grant)
        store = Gated(on.stores.worker)
        loaded = Loaded(on.stores.worker, "s")
        await loaded.take_over(grant)
        commits = Commits(
            on.stores.worker,
            on.settings,
            on.log,
            recorder=Recorder(Writer(store, held)),
            held=held,
            loaded=loaded,
            agent=Agent("bot", model="main"),
        )
        await commits.write(begun(loaded.checkpoint))
        Counted.copies = 0
        yield Saving(on, store, loaded, commits)


async def test_saving_a_checkpoint_copies_nothing_of_it() -> None:
    """A save reads the checkpoint where it is.

    Case 001-17: a save makes no deep copy, holds nothing of the checkpoint afterwards, and what is
    loaded is equal to what was saved.
    """
    async with saving() as it:
        payload = it.loaded.checkpoint.metadata["payload"]
        before = sys.getrefcount(payload)
        draft = it.changed(it.loaded.checkpoint, value=1)
        await it.commits.write(draft)
        assert it.loaded.checkpoint.metadata["payload"] is payload
        del draft
        assert Counted.copies == 0
        assert sys.getrefcount(payload) == before
        assert (await it.stored()) == it.loaded.checkpoint


async def test_a_snapshot_keeps_its_value_while_the_session_moves_on() -> None:
    """What a save in flight writes is what the checkpoint was when it was asked for.

    Case 001-18: a kept snapshot stays at 1 while the live checkpoint becomes 2. Difference: a
    change makes a new value that shares all that did not change, whether or not a snapshot is
    kept, so there is nothing to copy: no copy instead of one.
    """
    async with saving() as it:
        it.store.gate.clear()
        snapshot = it.changed(it.loaded.checkpoint, value=1)
        asked = it.store.asked
        save = asyncio.create_task(it.commits.write(snapshot))
        await until(lambda: it.store.asked > asked, "the save is in flight")
        live = it.changed(snapshot.checkpoint, value=2).checkpoint
        again = it.changed(live, value=3).checkpoint
        field = "metadata"
        with pytest.raises(ValidationError):
            setattr(snapshot.checkpoint, field, {})
        it.store.gate.set()
        await save
        values = [one.metadata["value"] for one in (snapshot.checkpoint, live, again)]
        assert values == [1, 2, 3]
        assert (await it.stored()).metadata["value"] == 1
        assert live.metadata["payload"] is again.metadata["payload"]
        assert live.metadata["payload"] is snapshot.checkpoint.metadata["payload"]
        assert Counted.copies == 0

"""What the keeper's thread says of a held session reaches the loop that runs it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from changeover_shared._errors import LeaseError, LeaseExpired, LeaseGone
from changeover_shared._events import Delta
from changeover_shared._store.records import Lease
from changeover_shared._words import GiveUp
from changeover_worker._session.held import Drain, Held
from changeover_worker._session.writer import Writer
from tests.support.holding import bench, until

LEASE = Lease(session_id="s", fence=1, incarnation="w:1", nonce="n", route="bot@1")
EXPIRED = LeaseExpired(session_id="s", fence=1)


def from_a_thread(say: Callable[[], None]) -> None:
    thread = threading.Thread(target=say)
    thread.start()
    thread.join()


async def stops(held: Held, say: Callable[[], None]) -> bool:
    """Whether what runs is stopped by `say`."""
    running: asyncio.Task[object] = asyncio.create_task(asyncio.Event().wait())
    held.running((running,))
    from_a_thread(say)
    marker = asyncio.Event()
    asyncio.get_running_loop().call_soon(marker.set)
    await marker.wait()
    await asyncio.sleep(0)
    stopped = running.cancelled()
    running.cancel()
    await asyncio.wait({running})
    return stopped


@pytest.mark.parametrize(
    ("say", "stopped"),
    [
        (lambda held: held.alert(1), True),
        (lambda held: held.alert(0), False),
        (lambda held: held.lose(EXPIRED), True),
        (lambda held: held.drain(), False),
        (lambda held: held.drain_now(), True),
    ],
)
async def test_a_word_from_another_thread_stops_what_must_stop(
    say: Callable[[Held], None], stopped: bool
) -> None:
    held = Held(LEASE, 0, trusted_until=0.0)
    assert await stops(held, lambda: say(held)) is stopped


async def test_what_begins_after_the_word_is_stopped_as_well() -> None:
    held = Held(LEASE, 0, trusted_until=0.0)
    held.note_lost(EXPIRED)
    task: asyncio.Task[object] = asyncio.create_task(asyncio.sleep(60))
    held.running((task,))
    await asyncio.wait({task})
    assert task.cancelled()


async def test_a_control_that_was_dealt_with_stops_nothing_again() -> None:
    held = Held(LEASE, 0, trusted_until=0.0)
    held.seen_epoch = 4
    assert not await stops(held, lambda: held.alert(4))
    assert await stops(held, lambda: held.alert(5))


async def test_the_first_loss_and_the_most_urgent_drain_stay() -> None:
    held = Held(LEASE, 0, trusted_until=0.0)
    held.drain_now()
    held.drain()
    held.lose(EXPIRED)
    held.lose(LeaseGone(session_id="s", fence=1))
    await until(lambda: held.lost is not None, "the loss is known")
    assert held.lost is EXPIRED
    assert held.drain_level is Drain.NOW


def test_a_word_after_the_loop_has_closed_does_nothing() -> None:
    async def make() -> Held:
        return Held(LEASE, 0, trusted_until=0.0)

    held = asyncio.run(make())
    held.alert(1)
    held.lose(EXPIRED)
    assert (held.ctl_epoch, held.lost) == (0, None)


async def test_after_a_loss_nothing_leaves_the_process() -> None:
    async with bench() as on:
        await on.submit("hello")
        held = on.hold(await on.claim())
        held.note_lost(EXPIRED)
        writer = Writer(on.stores.worker, held)
        before = await on.stores.dump()
        with pytest.raises(LeaseError):
            await writer.append([Delta(text="x")])
        with pytest.raises(LeaseError):
            await writer.give_up(GiveUp.RELEASE)
        assert await on.stores.dump() == before


@pytest.mark.parametrize(
    "say",
    [
        lambda held: held.alert(1),
        lambda held: held.lose(EXPIRED),
        lambda held: held.drain(),
        lambda held: held.drain_now(),
    ],
    ids=["control", "loss", "drain", "urgent drain"],
)
async def test_whatever_wants_the_session_ends_all_its_pauses(say: Callable[[Held], None]) -> None:
    held = Held(LEASE, 0, trusted_until=0.0)
    pauses = [asyncio.create_task(held.changed_or(seconds)) for seconds in (3600, None)]
    await until(lambda: len(held._waiters) == 2, "both wait")
    from_a_thread(lambda: held.alert(0))
    await asyncio.sleep(0)
    assert not any(pause.done() for pause in pauses) and not held.leaving
    from_a_thread(lambda: say(held))
    async with asyncio.timeout(10):
        await asyncio.gather(*pauses)
    assert held.leaving
    async with asyncio.timeout(10):
        await held.changed_or(3600)


async def test_a_pause_that_nothing_ends_takes_its_time() -> None:
    held = Held(LEASE, 0, trusted_until=0.0)
    await held.changed_or(0.001)
    assert not held.leaving

"""An id that comes again, whatever has become of what it named: the first answer, or a refusal."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from changeover_shared._store.records import EVERYBODY, Crowd
from tests.support.driving import Driver

Arrange = Callable[[Driver], Awaitable[object]]


async def _waiting(drive: Driver) -> None:
    await drive.submit("m1")


async def _running(drive: Driver) -> None:
    await drive.run("m1")


async def _completed(drive: Driver) -> None:
    await drive.finish(await drive.run("m1"))


async def _failed(drive: Driver) -> None:
    await drive.commit(await drive.run("m1"), "end", end="failed", next="release")


async def _aborted(drive: Driver) -> None:
    await drive.commit(await drive.run("m1"), "end", end="aborted", next="release")


async def _given_back(drive: Driver) -> None:
    await drive.commit(await drive.run("m1"), "end", end="requeue", next="release")


async def _cancelled(drive: Driver) -> None:
    await drive.submit("m1")
    await drive.cancel("m1")


async def _superseded(drive: Driver) -> None:
    for name in ("m1", "m2"):
        await drive.submit(name, policy="latest", key="latest")


async def _dead_lettered(drive: Driver) -> None:
    await drive.submit("m1")
    await drive.stop()
    await drive.dead_letter()


async def _closed(drive: Driver) -> None:
    await drive.submit("m1")
    await drive.submit("c1")
    lease = await drive.hold()
    await drive.commit(lease, "start", take=(1,))
    await drive.commit(lease, "end", end="completed", next="close")


async def _cancelled_by_the_close(drive: Driver) -> None:
    await drive.submit("c1")
    await drive.submit("m1")
    lease = await drive.hold()
    await drive.commit(lease, "start", take=(1,))
    await drive.commit(lease, "end", end="completed", next="close")


async def _deleted(drive: Driver) -> None:
    await drive.submit("m1")
    await drive.delete()


async def _deleted_after_its_end(drive: Driver) -> None:
    await _completed(drive)
    await drive.delete()


async def _alive_again(drive: Driver) -> None:
    await _deleted(drive)
    await drive.submit("m2")


BECAME: dict[Arrange, str] = {
    _waiting: "",
    _running: "",
    _given_back: "",
    _completed: "completed",
    _failed: "failed",
    _aborted: "aborted",
    _cancelled: "cancelled",
    _superseded: "superseded",
    _dead_lettered: "dead_lettered",
    _closed: "completed",
    _cancelled_by_the_close: "cancelled",
    _deleted: "cancelled",
    _deleted_after_its_end: "completed",
    _alive_again: "cancelled",
}
"""What has become of `m1`, and how it has ended; '' while it is open."""


@pytest.mark.parametrize("arrange", BECAME, ids=lambda one: one.__name__.strip("_"))
async def test_an_id_names_one_message_for_the_window_whatever_became_of_it(
    drive: Driver, arrange: Arrange
) -> None:
    """G1: with the same content the first answer, with other content a refusal; nothing changes,
    and a bound that is reached meanwhile refuses neither."""
    await arrange(drive)
    await drive.full(Crowd(EVERYBODY, 9, 9))
    async with drive.unchanged():
        word, n, *_ = again = await drive.submit("m1")
        assert (word, again[5]) == ("DUPLICATE", BECAME[arrange])
        assert int(n) >= 1
        # Another policy is no other content.
        assert (await drive.submit("m1", policy="steer"))[:2] == ["DUPLICATE", n]
        assert (await drive.submit("m1", may_create=False))[:2] == ["DUPLICATE", n]
        assert (await drive.submit("m1", digest="another"))[0] == "MISMATCH"

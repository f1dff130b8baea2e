"""`pause`: nothing of the queue is granted, everything else goes on."""

from __future__ import annotations

from changeover_shared._store.keys import route_of
from tests.support.driving import Driver, committed


async def test_nothing_of_a_paused_queue_is_offered_or_granted(drive: Driver) -> None:
    await drive.submit("m1")
    assert await drive.pause() == ["OK"]
    async with drive.unchanged():
        assert (await drive.peek())[3] == [["0"]]
        assert await drive.claim() == [["PAUSED"]]
    await drive.resume()
    assert (await drive.peek())[3] == [["1", drive.session]]
    await drive.hold()


async def test_suspects_of_it_wait_as_well_and_are_not_quarantined_meanwhile(
    drive: Driver,
) -> None:
    await drive.submit("m1")
    await drive.set_head(attempts=5)
    await drive.pause()
    async with drive.unchanged():
        assert (await drive.peek(solo=True))[3] == [["0"]]
        assert await drive.claim(solo=True) == [["PAUSED"]]


async def test_other_queues_and_formats_are_told_apart(drive: Driver) -> None:
    other = drive.neighbour("other", route_of("assistant.eu"))
    await other.submit("m1")
    await drive.submit("m1")
    await drive.pause()
    newer = "assistant@2"
    sets = (await drive.peek(other.route, drive.route, newer))[3]
    assert sets == [["1", other.session], ["0"], ["0"]]
    assert (await other.hold()).fence == 1


async def test_a_look_shows_what_expired_or_is_due_in_a_paused_queue(drive: Driver) -> None:
    """It is placed, so that it is there when the queue goes on."""
    await drive.run("m1")
    await drive.expire()
    await drive.pause()
    assert (await drive.peek())[1] == [drive.session]
    assert await drive.reap() == [["PLACED", "ready"]]
    assert await drive.claim(nonce="n2") == [["PAUSED"]]


async def test_a_repeat_of_a_grant_is_answered_with_it(drive: Driver) -> None:
    """The grant was made; its reply was lost."""
    await drive.submit("m1")
    lease = await drive.hold()
    await drive.pause()
    (again,) = await drive.claim(incarnation=lease.incarnation, nonce=lease.nonce)
    assert again[:2] == ["GRANTED", str(lease.fence)]
    assert (await drive.claim(incarnation="w2:bb", nonce="n2"))[0][0] == "BUSY"


async def test_a_running_turn_goes_on_and_no_further_one_begins(drive: Driver) -> None:
    lease = await drive.run("m1")
    await drive.submit("m2")
    await drive.pause()
    assert committed(await drive.commit(lease, "step", progress=True))["held"] == "held"
    ended = await drive.finish(lease, next="auto")
    assert (ended["held"], ended["status"]) == ("gone", "ready")
    assert await drive.claim(nonce="n2") == [["PAUSED"]]


async def test_submissions_and_controls_are_accepted(drive: Driver) -> None:
    await drive.pause()
    assert (await drive.submit("m1"))[0] == "ACCEPTED"
    assert (await drive.submit("m2"))[0] == "ACCEPTED"
    assert await drive.cancel("m2") == ["CANCELLED"]


async def test_a_repeat_changes_nothing(drive: Driver) -> None:
    for ask in (drive.pause, drive.resume):
        assert await ask() == ["OK"]
        async with drive.unchanged():
            assert await ask() == ["OK"]

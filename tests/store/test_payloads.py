"""Encrypted payloads on every kind of server: who joins, who reads, what a receipt compares."""

from __future__ import annotations

from pathlib import Path

import pytest

from changeover_shared._errors import (
    IdReused,
    Invalid,
    PayloadDamaged,
    PayloadKeyMissing,
)
from changeover_shared._events import Message
from changeover_shared._items import UserMessage
from changeover_shared._ops import MessageOp, digest, encode_op
from changeover_shared._store.keys import route_of
from changeover_shared._store.payloads import OVERHEAD, is_sealed, key_id_of
from changeover_shared._store.records import Create, Grant, Submit, Submitted
from changeover_shared._words import GiveUp
from tests.support.acting import Acting
from tests.support.fleet import Stores, small_settings
from tests.support.payload_keys import KeyFiles, joined

SECRET = "what-nobody-may-read"
ROUTE = route_of("assistant")


@pytest.fixture
def keys(tmp_path: Path) -> KeyFiles:
    return KeyFiles(tmp_path)


def message(text: str = SECRET, id: str = "m1", session: str = "s") -> Submit:
    op = MessageOp(text=text)
    return Submit(
        session, id, digest(op), "turn", encode_op(op),
        Create(ROUTE, "assistant", context=f'{{"chat":"{SECRET}"}}'), event=Message(text=text),
    )  # fmt: skip


async def answered(stores: Stores, name: str = "a") -> None:
    """Send a message and answer it."""
    assert isinstance(await stores.producer.submit(message()), Submitted)
    await Acting(stores.worker, name).answer("s", f"answer: {SECRET}")


# Who joins


async def test_the_first_process_with_a_key_turns_encryption_on(
    stores: Stores, keys: KeyFiles
) -> None:
    name = stores.producer.keys.secret
    assert await stores.executor.command("GET", name) is None
    await joined(stores, keys.settings("old"))
    stored = await stores.executor.command("GET", name)
    assert is_sealed(stored)
    await joined(stores, keys.settings("old"))
    assert await stores.executor.command("GET", name) == stored


async def test_a_process_without_the_key_is_refused_and_changes_nothing(
    stores: Stores, keys: KeyFiles
) -> None:
    await joined(stores, keys.settings("old"))
    before = await stores.dump()
    for settings in (small_settings(), keys.settings("other"), keys.settings("other", "new")):
        with pytest.raises(PayloadKeyMissing, match=r"fleet 'co' is encrypted with key [0-9a-f]+,"):
            await joined(stores, settings)
    assert await stores.dump() == before


async def test_a_file_that_holds_no_key_is_named_before_anything_is_sent(
    stores: Stores, keys: KeyFiles
) -> None:
    before = await stores.dump()
    with pytest.raises(Invalid, match=r"CHANGEOVER_PAYLOAD_KEYS: .*absent cannot be read"):
        await joined(stores, keys.settings("absent"))
    assert await stores.dump() == before


async def test_what_keys_the_digests_follows_the_key_that_encrypts(
    stores: Stores, keys: KeyFiles
) -> None:
    """And stays the same, so that a repeat is known after a rotation."""
    name = stores.producer.keys.secret
    old = await joined(stores, keys.settings("old"))
    await old.producer.submit(message())
    first = await stores.executor.command("GET", name)
    both = await joined(stores, keys.settings("new", "old"))
    second = await stores.executor.command("GET", name)
    assert key_id_of(first) != key_id_of(second)
    new = await joined(stores, keys.settings("new"))
    for later in (both, new):
        answer = await later.producer.submit(message())
        assert isinstance(answer, Submitted) and answer.word == "DUPLICATE"
        with pytest.raises(IdReused):
            await later.producer.submit(message("something else"))


# What is read


async def test_what_one_process_writes_another_reads(stores: Stores, keys: KeyFiles) -> None:
    await answered(await joined(stores, keys.settings("old")))
    other = await joined(stores, keys.settings("new", "old"))
    snapshot = await other.producer.snapshot("s")
    assert snapshot is not None and SECRET in snapshot.head.context
    texts = [getattr(event, "text", "") for event in await other.producer.journal("s")]
    assert texts.count(SECRET) == 1 and texts.count(f"answer: {SECRET}") == 2
    (one,) = await other.producer.turns_back("s", before=None, limit=10)
    assert one[1].text == f"answer: {SECRET}"
    items = await other.producer.transcript_back("s", before=None, limit=10)
    assert any(isinstance(entry.item, UserMessage) for entry in items)


async def test_nothing_that_was_said_can_be_read_in_redis(stores: Stores, keys: KeyFiles) -> None:
    mine = await joined(stores, keys.settings("old"))
    await answered(mine)
    await mine.producer.submit(message(id="m2"))
    await mine.producer.upkeep.delete("s", reason=SECRET)
    await mine.producer.submit(message(id="m3"))
    dump = await stores.dump()
    assert "m3" in repr(dump)
    assert SECRET not in repr(dump)
    assert digest(MessageOp(text=SECRET)) not in repr(dump), "a guess could be tried"


async def test_a_fleet_that_begins_to_encrypt_reads_what_it_has(
    stores: Stores, keys: KeyFiles
) -> None:
    await answered(stores)
    await stores.producer.submit(message("second", "m2"))
    mine = await joined(stores, keys.settings("old"))
    (entry,) = await mine.producer.inbox("s")
    assert b"second" in entry.body
    await Acting(mine.worker).answer("s", "mixed")
    records = [
        record.text for _, record in await mine.producer.turns_back("s", before=None, limit=9)
    ]
    assert records == ["mixed", f"answer: {SECRET}"]
    bodies = await stores.executor.command(
        "XRANGE", mine.producer.keys.of("s").session("s", "turns"), "-", "+"
    )
    assert [is_sealed(fields[1]) for _, fields in bodies] == [False, True]


async def test_a_repeat_of_what_was_accepted_before_is_known(
    stores: Stores, keys: KeyFiles
) -> None:
    """A client that sends again after its fleet began to encrypt has not used the id for anything
    else."""
    await stores.producer.submit(message())
    mine = await joined(stores, keys.settings("old"))
    before = await stores.dump()
    answers = await mine.producer.submit_all([message(), message("another", "m2")])
    assert [one.word for one in answers if isinstance(one, Submitted)] == ["DUPLICATE", "ACCEPTED"]
    with pytest.raises(IdReused):
        await mine.producer.submit(message("something else"))
    assert len(await stores.dump()) == len(before)


async def test_a_value_that_was_moved_to_another_session_is_refused(
    stores: Stores, keys: KeyFiles
) -> None:
    mine = await joined(stores, keys.settings("old"))
    await mine.producer.submit(message())
    at = stores.producer.keys.of("s")
    thief = next(f"t:{i}" for i in range(1000) if stores.producer.keys.of(f"t:{i}") == at)
    await mine.producer.submit(message("mine", session=thief))
    ((_, fields),) = await stores.executor.command("XRANGE", at.session("s", "journal"), "-", "+")
    await stores.executor.command("XADD", at.session(thief, "journal"), "2-0", *fields)
    with pytest.raises(PayloadDamaged, match=f"an event of session '{thief}' does not open"):
        await mine.producer.journal(thief)


@pytest.mark.parametrize("character", ["x", "\x01"])
async def test_a_message_of_the_largest_size_is_accepted(
    stores: Stores, keys: KeyFiles, character: str
) -> None:
    """Also where JSON writes six bytes for one."""
    mine = await joined(stores, keys.settings("old"))
    assert OVERHEAD < 64
    text = character * stores.producer.settings.max_message
    answer = await mine.producer.submit(message(text))
    assert isinstance(answer, Submitted) and answer.word == "ACCEPTED"
    (entry,) = await mine.producer.inbox("s")
    assert len(entry.body) > len(text)


# Without the key


async def taken(stores: Stores) -> Grant:
    await stores.producer.now_ms()
    (grant,) = await stores.worker.claim(
        stores.worker.keys.of("s").partition,
        ROUTE,
        ["s"],
        incarnation="b:00000001",
        nonce="nonce",
        ttl_ms=30_000,
        max_step_ms=600_000,
        not_after_ms=stores.worker.clock.now_ms() + 5_000,
    )
    assert isinstance(grant, Grant)
    return grant


async def test_a_grant_that_cannot_be_read_says_so_and_can_be_given_up(
    stores: Stores, keys: KeyFiles
) -> None:
    """It counts as no attempt, and nothing of the session is changed."""
    mine = await joined(stores, keys.settings("old"))
    await mine.producer.submit(message())
    grant = await taken(stores)
    assert isinstance(grant.unreadable, PayloadKeyMissing)
    assert (grant.checkpoint, grant.inbox, grant.head.agent) == (None, (), "assistant")
    assert await stores.worker.give_up(grant.lease, GiveUp.UNABLE)
    head = await mine.worker.read_head("s")
    assert head is not None and head.attempts == 0
    assert (await mine.producer.inbox("s"))[0].submission_id == "m1"


async def test_what_cannot_be_read_can_be_looked_at_and_deleted(
    stores: Stores, keys: KeyFiles
) -> None:
    mine = await joined(stores, keys.settings("old"))
    await answered(mine)
    with pytest.raises(PayloadKeyMissing, match="of session 's'"):
        await stores.producer.snapshot("s")
    (snapshot,) = await stores.producer.snapshots(["s"], strict=False)
    assert snapshot is not None
    assert (snapshot.head.context, snapshot.checkpoint) == ("{}", None)
    assert await stores.producer.upkeep.delete("s")


async def test_a_fleet_whose_only_key_is_lost_begins_anew_with_another(
    stores: Stores, keys: KeyFiles
) -> None:
    """What was said is lost; sessions can be listed and ended, and new ones begin."""
    mine = await joined(stores, keys.settings("old"))
    await answered(mine)
    await stores.executor.command("DEL", stores.producer.keys.secret)
    anew = await joined(stores, keys.settings("new"))
    with pytest.raises(PayloadKeyMissing, match="of session 's'"):
        await anew.producer.journal("s")
    with pytest.raises(IdReused):
        await anew.producer.submit(message())
    (snapshot,) = await anew.producer.snapshots(["s"], strict=False)
    assert snapshot is not None and snapshot.head.status == "idle"
    assert await anew.producer.upkeep.delete("s")
    assert isinstance(await anew.producer.submit(message(id="m2")), Submitted)
    (entry,) = await anew.producer.inbox("s")
    assert entry.submission_id == "m2"

"""The payload codec: what is stored opens again, and only where it was written."""

from __future__ import annotations

import os
import subprocess
import sys
from base64 import b64encode
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from changeover_shared._errors import Invalid, PayloadDamaged, PayloadKeyMissing
from changeover_shared._store.keys import Keys
from changeover_shared._store.payloads import (
    MAGIC,
    NOTHING,
    OVERHEAD,
    PLAIN,
    EncryptedPayloads,
    KeyRing,
    Kind,
    is_sealed,
    key_id_of,
    read_key_ring,
    unencrypted,
)
from changeover_shared._store.scripts import NAMES, script
from changeover_shared._store.sealing import sealed
from tests.support.every_request import SESSION, every_request
from tests.support.fleet import small_settings

OLD, NEW = bytes(range(32)), bytes(range(32, 64))
RING = KeyRing([NEW])
FLEET_SECRET = RING.new_secret()
PAYLOADS = EncryptedPayloads(RING, FLEET_SECRET, fleet="co")

KINDS: tuple[Kind, ...] = (
    "submission", "context", "event", "checkpoint", "item", "prefix", "turn", "row",
    "schedule",
)  # fmt: skip
TEXTS = st.binary(max_size=300) | st.text(max_size=300).map(str.encode)


def stored_by(payloads: EncryptedPayloads, plain: str | bytes, kind: Kind = "event") -> bytes:
    stored = payloads.of("s:1").seal(kind, plain)
    assert isinstance(stored, bytes)
    return stored


@given(plain=TEXTS.filter(bool), session=st.text(max_size=40), kind=st.sampled_from(KINDS))
@example(plain=MAGIC + b"what looks encrypted", session="s:1", kind="event")
def test_what_is_stored_opens_again_and_shows_nothing(
    plain: bytes, session: str, kind: Kind
) -> None:
    payloads = PAYLOADS.of(session)
    stored = payloads.seal(kind, plain)
    assert isinstance(stored, bytes) and is_sealed(stored)
    assert payloads.open(kind, stored) == plain
    assert len(stored) == len(plain) + OVERHEAD
    # Chance may repeat a few bytes, and the mark of what is encrypted is no secret.
    assert plain not in stored or len(plain) <= len(MAGIC)
    assert payloads.seal(kind, plain) != stored, "the nonce is another one each time"


@given(
    plain=TEXTS.filter(bool),
    kinds=st.lists(st.sampled_from(KINDS), min_size=2, max_size=2, unique=True),
    sessions=st.lists(st.text(max_size=20), min_size=2, max_size=2, unique=True),
)
def test_what_is_moved_does_not_open(plain: bytes, kinds: list[Kind], sessions: list[str]) -> None:
    stored = PAYLOADS.of(sessions[0]).seal(kinds[0], plain)
    assert isinstance(stored, bytes)
    with pytest.raises(PayloadDamaged, match=r"it is not what was written there"):
        PAYLOADS.of(sessions[1]).open(kinds[0], stored)
    with pytest.raises(PayloadDamaged):
        PAYLOADS.of(sessions[0]).open(kinds[1], stored)


@given(plain=TEXTS.filter(bool), data=st.data())
def test_what_is_changed_does_not_open(plain: bytes, data: st.DataObject) -> None:
    stored = bytearray(stored_by(PAYLOADS, plain))
    at = data.draw(st.integers(len(MAGIC), len(stored) - 1))
    stored[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises((PayloadDamaged, PayloadKeyMissing)):
        PAYLOADS.of("s:1").open("event", bytes(stored))


@given(plain=TEXTS.filter(bool), data=st.data())
def test_what_is_cut_off_does_not_open(plain: bytes, data: st.DataObject) -> None:
    stored = stored_by(PAYLOADS, plain)
    end = data.draw(st.integers(len(MAGIC), len(stored) - 1))
    with pytest.raises((PayloadDamaged, PayloadKeyMissing)):
        PAYLOADS.of("s:1").open("event", stored[:end])


def test_what_says_nothing_stays_as_it_is() -> None:
    assert PAYLOADS.of("s:1").seal("prefix", "") == ""
    assert PAYLOADS.of("s:1").seal("context", "{}") == "{}"
    assert PAYLOADS.of("s:1").open("checkpoint", b"") == b""


def test_a_name_that_is_not_ascii_has_payloads_of_its_own() -> None:
    stored = PAYLOADS.of("straße:ß").seal("item", "grüße")
    assert isinstance(stored, bytes)
    assert PAYLOADS.of("straße:ß").open("item", stored).decode() == "grüße"


def test_what_was_written_before_encryption_was_on_is_read() -> None:
    assert PAYLOADS.of("s:1").open("event", b'{"text":"hi"}') == b'{"text":"hi"}'
    assert PLAIN.of("s:1").open("event", b"{}") == b"{}"
    assert PLAIN.of("s:1").seal("event", "{}") == "{}"
    assert not is_sealed(b"{}")


def test_keys_are_rotated_by_putting_the_new_one_first() -> None:
    before = EncryptedPayloads(KeyRing([OLD]), KeyRing([OLD]).new_secret(), fleet="co")
    written = stored_by(before, "said before")
    both = KeyRing([NEW, OLD])
    between = EncryptedPayloads(both, KeyRing([OLD]).new_secret(), fleet="co")
    assert between.of("s:1").open("event", written) == b"said before"
    rewritten = stored_by(between, "said after")
    assert key_id_of(rewritten) == KeyRing([NEW]).first == both.first != key_id_of(written)
    after = EncryptedPayloads(KeyRing([NEW]), between.rotated_secret(), fleet="co")
    assert after.of("s:1").open("event", rewritten) == b"said after"
    with pytest.raises(PayloadKeyMissing) as missing:
        after.of("s:1").open("event", written)
    assert missing.value.key_id == key_id_of(written)
    assert str(missing.value).startswith("an event of session 's:1' is encrypted with key ")


def test_a_process_without_keys_names_the_one_that_it_needs() -> None:
    with pytest.raises(PayloadKeyMissing, match=f"with key {RING.first}, which this process"):
        PLAIN.of("s:1").open("event", stored_by(PAYLOADS, "x"))


def test_a_process_is_refused_by_a_fleet_whose_key_it_does_not_have() -> None:
    with pytest.raises(PayloadKeyMissing, match=f"fleet 'co' is encrypted with key {RING.first}"):
        unencrypted(FLEET_SECRET, fleet="co")
    with pytest.raises(PayloadKeyMissing, match=r"fleet 'co' is encrypted"):
        EncryptedPayloads(KeyRing([OLD]), FLEET_SECRET, fleet="co")
    with pytest.raises(PayloadDamaged, match=r"fleet 'co' does not open"):
        EncryptedPayloads(RING, FLEET_SECRET[:-1], fleet="co")
    assert unencrypted(None, fleet="co") is PLAIN


def test_a_digest_can_be_compared_and_not_guessed() -> None:
    """It is the same for every process and after a rotation, and another one in another fleet."""
    digest = "0123456789abcdef"
    mine = PAYLOADS.digest(digest)
    assert mine != digest and len(mine) == len(digest)
    rotated = EncryptedPayloads(
        KeyRing([OLD, NEW]), EncryptedPayloads(RING, FLEET_SECRET, fleet="co").rotated_secret(),
        fleet="co",
    )  # fmt: skip
    assert rotated.digest(digest) == mine
    assert EncryptedPayloads(RING, RING.new_secret(), fleet="co").digest(digest) != mine
    assert PLAIN.digest(digest) == digest


def test_the_id_of_a_key_can_be_computed_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(b64encode(OLD).decode() + "\n")
    computed = subprocess.run(
        f"base64 -d {path} | sha256sum | cut -c1-16", shell=True, capture_output=True, text=True
    ).stdout.strip()
    ring = read_key_ring([str(path)])
    assert ring is not None and ring.first == computed


def test_a_key_file_is_what_the_shell_makes(tmp_path: Path) -> None:
    path = tmp_path / "key"
    subprocess.run(f"head -c 32 /dev/urandom | base64 > {path}", shell=True, check=True)
    ring = read_key_ring([str(path), str(path)])
    assert ring is not None
    assert ring.open(ring.seal(b"x", kind="event", session_id="s"), kind="event", session_id="s")
    assert read_key_ring([]) is None


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"not base64!", "is not base64"),
        (b"\xff\xfe", "is not base64"),
        (b64encode(OLD[:31]), "holds 31 bytes, a key has 32"),
        (b"", "holds 0 bytes, a key has 32"),
    ],
)
def test_a_file_without_a_key_is_named_and_its_content_is_not_shown(
    tmp_path: Path, content: bytes | None, reason: str
) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(Invalid) as wrong:
        read_key_ring([str(path)])
    text = str(wrong.value)
    assert text.startswith(f"CHANGEOVER_PAYLOAD_KEYS: {path} {reason}; make a key with: ")
    assert not content or repr(content)[2:-1] not in text


def test_the_library_is_needed_only_with_keys(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(b64encode(os.urandom(32)))
    code = (
        "import sys; sys.modules['cryptography'] = None\n"
        "import changeover, changeover_worker\n"
        "from changeover_shared._errors import ExtraMissing\n"
        "from changeover_shared._store.payloads import read_key_ring\n"
        "assert read_key_ring([]) is None\n"
        "try:\n"
        f"    read_key_ring([{str(path)!r}])\n"
        "except ExtraMissing as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "CHANGEOVER_PAYLOAD_KEYS needs a part" in done.stdout
    assert "pip install 'changeover[encryption]'" in done.stdout


@pytest.mark.parametrize("name", NAMES)
def test_a_header_says_which_arguments_are_payloads(name: str) -> None:
    header = script(name).header
    fields = {f"{of_list}.{field}" for of_list, given in header.lists.items() for field in given}
    assert set(header.sealed) <= {*header.args, *fields}
    assert set(header.sealed.values()) <= set(KINDS)
    if header.sealed:
        assert "session" in header.args
    # What is called so is what people said, or what was made of it.
    told = {"body", "detail", "context", "state", "record", "prefix"}
    named = {one for one in {*header.args, *fields} if one.rpartition(".")[2] in told}
    assert named == set(header.sealed)


@pytest.mark.parametrize("name", NAMES)
def test_a_request_leaves_with_its_payloads_encrypted_and_nothing_else(name: str) -> None:
    request = every_request(Keys("co", 4), small_settings(), not_after_ms=1)[name]
    header = script(name).header
    assert sealed(request, PLAIN) is request
    found = sealed(request, PAYLOADS)
    assert (found.name, found.keys, found.each) == (request.name, request.keys, request.each)
    mine = PAYLOADS.of(SESSION)
    for arg, value in request.args.items():
        if arg in header.sealed and value not in NOTHING:
            assert is_sealed(bytes(found.args[arg]))  # type: ignore[arg-type]
        else:
            assert found.args[arg] == value
    for of_list, records in (request.lists or {}).items():
        fields = header.lists[of_list]
        for record, after in zip(records, (found.lists or {})[of_list], strict=True):
            for field, value, now in zip(fields, record, after, strict=True):
                kind = header.sealed.get(f"{of_list}.{field}")
                if kind is None or value in NOTHING:
                    assert now == value
                else:
                    assert isinstance(now, bytes) and isinstance(value, str)
                    assert mine.open(kind, now) == value.encode()  # type: ignore[arg-type]

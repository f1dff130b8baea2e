"""What Redis holds of conversations, as it is stored: as it is, or encrypted.

Encrypted, a value is `MAGIC`, 8 bytes that name the key, a random nonce of 96 bits, and what
AES-256-GCM makes of the plain text. Each session has a key of its own, derived from the file's, so
no nonce has to be unique beyond one session, and a value does not open in another session or as
another kind of thing. What was written before encryption was turned on stays readable.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from base64 import b64decode
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from changeover_shared._errors import ExtraMissing, Invalid, PayloadDamaged, PayloadKeyMissing
from changeover_shared._store.scripts import Value

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

Kind = Literal[
    "submission", "context", "event", "checkpoint", "item", "prefix", "turn", "row", "schedule"
]
"""What a value is: a submission's body, a session's context, ..."""

MAGIC: Final = b"\x01co\x01"
"""What no JSON begins with; the last byte is the version of the form."""
KEY_BYTES: Final = 32
NOTHING: Final = ("", "{}")
_ID_BYTES: Final = 8
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_SEALED_FROM: Final = len(MAGIC) + _ID_BYTES + _NONCE_BYTES
OVERHEAD: Final = _SEALED_FROM + _TAG_BYTES
"""How much longer a value is encrypted than plain."""
_CIPHERS_KEPT: Final = 4096
_SECRET: Final = "secret"
_FIELD: Final = "CHANGEOVER_PAYLOAD_KEYS"


def is_sealed(stored: bytes) -> bool:
    """Whether a stored value is encrypted."""
    return stored.startswith(MAGIC)


class Payloads:
    """The payloads of a fleet that does not encrypt."""

    encrypts = False

    def of(self, session_id: str) -> SessionPayloads:
        """The payloads of one session."""
        return SessionPayloads(session_id)

    def digest(self, plain: str) -> str:
        """A submission's digest, as its receipt holds it."""
        return plain


PLAIN: Final = Payloads()


class SessionPayloads:
    """The payloads of one session that are not encrypted."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id

    def seal(self, kind: Kind, plain: Value) -> Value:
        """A value as it is stored. One that says nothing stays as it is: scripts ask whether
        there is one, and it needs no key for ever."""
        return plain

    def open(self, kind: Kind, stored: bytes) -> bytes:
        """A stored value as it was written.

        Raises `PayloadKeyMissing` when it is encrypted with a key that this process does not
        have, and `PayloadDamaged` when it is not what was written here.
        """
        if is_sealed(stored):
            raise PayloadKeyMissing(what=_what(kind, self.session_id), key_id=key_id_of(stored))
        return stored


def unencrypted(stored_secret: bytes | None, *, fleet: str) -> Payloads:
    """The payloads of a process without keys. Raises `PayloadKeyMissing` if its fleet encrypts."""
    if stored_secret is not None:
        raise PayloadKeyMissing(what=f"fleet {fleet!r}", key_id=key_id_of(stored_secret))
    return PLAIN


class KeyRing:
    """The keys of one process: the first encrypts, all of them decrypt."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        """Raises `ExtraMissing` without the library."""
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError:
            raise ExtraMissing(what=_FIELD, extra="encryption") from None
        self._wrong: type[Exception] = InvalidTag
        self._keys: Mapping[bytes, bytes] = {_id_of(key): key for key in keys}
        self._first = _id_of(keys[0])

        def cipher(key: bytes, session_id: str) -> AESGCM:
            return AESGCM(hmac.digest(key, b"session " + session_id.encode(), "sha256"))

        self._cipher = lru_cache(_CIPHERS_KEPT)(cipher)

    @property
    def first(self) -> str:
        """The id of the key that encrypts."""
        return self._first.hex()

    def new_secret(self) -> bytes:
        """A random secret for a fleet that begins to encrypt, encrypted."""
        return self.seal(os.urandom(KEY_BYTES), kind=_SECRET, session_id="")

    def seal(self, plain: bytes, *, kind: str, session_id: str) -> bytes:
        """Encrypt a value for one session, as one kind of thing."""
        nonce = os.urandom(_NONCE_BYTES)
        cipher = self._cipher(self._keys[self._first], session_id)
        return b"".join((MAGIC, self._first, nonce, cipher.encrypt(nonce, plain, kind.encode())))

    def open(self, stored: bytes, *, kind: str, session_id: str, what: str = "") -> bytes:
        """Decrypt a value. Raises `PayloadKeyMissing` and `PayloadDamaged`, which say `what`."""
        key_id = stored[len(MAGIC) : len(MAGIC) + _ID_BYTES]
        key = self._keys.get(key_id)
        what = what or _what(kind, session_id)
        if key is None:
            raise PayloadKeyMissing(what=what, key_id=key_id.hex())
        nonce, body = stored[len(MAGIC) + _ID_BYTES : _SEALED_FROM], stored[_SEALED_FROM:]
        try:
            return self._cipher(key, session_id).decrypt(nonce, body, kind.encode())
        except (self._wrong, ValueError):
            raise PayloadDamaged(what=what, key_id=key_id.hex()) from None


class EncryptedPayloads(Payloads):
    """The payloads of a fleet that encrypts."""

    encrypts = True

    def __init__(self, ring: KeyRing, stored_secret: bytes, *, fleet: str) -> None:
        """Raises `PayloadError` when the ring cannot read what the fleet encrypts."""
        self._ring = ring
        self._secret = ring.open(
            stored_secret, kind=_SECRET, session_id="", what=f"fleet {fleet!r}"
        )
        """What digests are keyed with: the fleet's own, the same whatever key encrypts."""

    def rotated_secret(self) -> bytes:
        """The fleet's secret, encrypted with the key that encrypts here."""
        return self._ring.seal(self._secret, kind=_SECRET, session_id="")

    def of(self, session_id: str) -> SessionPayloads:
        return _Encrypted(self._ring, session_id)

    def digest(self, plain: str) -> str:
        # Without the key nobody can try whether a submission said what he guesses.
        return hmac.digest(self._secret, plain.encode(), "sha256").hex()[: len(plain)]


class _Encrypted(SessionPayloads):
    def __init__(self, ring: KeyRing, session_id: str) -> None:
        super().__init__(session_id)
        self._ring = ring

    def seal(self, kind: Kind, plain: Value) -> Value:
        if plain in NOTHING:
            return plain
        content = plain if isinstance(plain, bytes) else str(plain).encode()
        return self._ring.seal(content, kind=kind, session_id=self.session_id)

    def open(self, kind: Kind, stored: bytes) -> bytes:
        if not is_sealed(stored):
            return stored
        return self._ring.open(stored, kind=kind, session_id=self.session_id)


def key_id_of(stored: bytes) -> str:
    """The id of the key that a value is encrypted with, '' for one that is not."""
    return stored[len(MAGIC) : len(MAGIC) + _ID_BYTES].hex() if is_sealed(stored) else ""


def read_key_ring(paths: Sequence[str]) -> KeyRing | None:
    """The keys in the files, each 32 bytes in base64; None when there are no files.

    Raises `Invalid` for a file that holds no key, and `ExtraMissing`.
    """
    return KeyRing([_read_key(Path(path)) for path in paths]) if paths else None


def _read_key(path: Path) -> bytes:
    try:
        key = b64decode("".join(path.read_text("ascii").split()), validate=True)
    except OSError as error:
        raise _not_a_key(path, f"cannot be read: {error.strerror}") from None
    except ValueError:
        raise _not_a_key(path, "is not base64") from None
    if len(key) != KEY_BYTES:
        raise _not_a_key(path, f"holds {len(key)} bytes, a key has {KEY_BYTES}")
    return key


def _not_a_key(path: Path, reason: str) -> Invalid:
    # Never what it holds: a key that is nearly right is still a secret.
    text = f"{path} {reason}; make a key with: head -c 32 /dev/urandom | base64"
    return Invalid(field=_FIELD, reason=text, unchanged="nothing was started")


def _id_of(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()[:_ID_BYTES]


def _what(kind: str, session_id: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind} of session {session_id!r}"

"""Identifiers: what they may hold, checked before they become keys, and how they are minted."""

from __future__ import annotations

import re
import secrets
from zlib import crc32

import uuid_utils

from changeover_shared._errors import Invalid

_IDENTIFIER = re.compile(r"[!$&'()*+,\-.0-9:;<=>@A-Z\[\]^_`a-z~]{1,256}")
"""Printable ASCII without space, braces, `|` and `/ ? # % \\ "`: it sits in keys and URL paths."""
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_WORKER = re.compile(r"[A-Za-z0-9._@-]{1,64}")
_UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def identifier(value: str, *, field: str) -> str:
    """Return `value` if it may name a session or a submission; raises `Invalid`."""
    if not isinstance(value, str) or not _IDENTIFIER.fullmatch(value):
        raise Invalid(
            field=field,
            reason=f"{value!r:.80} is not 1 to 256 printable ASCII characters without spaces, "
            'braces, | and / ? # % \\ "',
        )
    return value


def name(value: str, *, field: str) -> str:
    """Return `value` if it may name a queue, an agent, a tenant or a channel; raises `Invalid`."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise Invalid(
            field=field, reason=f"{value!r:.80} is not 1 to 64 characters of A-Z a-z 0-9 . _ -"
        )
    return value


def worker_name(value: str) -> str:
    """Return `value` if it may name a worker; raises `Invalid`."""
    if not isinstance(value, str) or not _WORKER.fullmatch(value):
        raise Invalid(
            field="worker", reason=f"{value!r:.80} is not 1 to 64 characters of A-Z a-z 0-9 . _ - @"
        )
    return value


def new_submission_id() -> str:
    """Mint a UUIDv7, so that ids sort by time and old ones can be told from new."""
    return str(uuid_utils.uuid7())


def id_time_ms(value: str) -> int | None:
    """The time inside a UUIDv7, in milliseconds; None for every other identifier."""
    if not _UUID7.fullmatch(value):
        return None
    return int(value[:8] + value[9:13], 16)


def new_nonce() -> str:
    """Mint 128 random bits: names one attempt to claim, never reused."""
    return secrets.token_urlsafe(16)


def new_incarnation(worker: str) -> str:
    """Name one boot of `worker`: `<worker>:<8 hex digits>`."""
    return f"{worker_name(worker)}:{secrets.token_hex(4)}"


def worker_of(incarnation: str) -> str:
    """The worker that an incarnation is a boot of."""
    return incarnation.rpartition(":")[0]


def partition_of(session_id: str, partitions: int) -> int:
    """The partition that holds a session: `crc32(id) % P`."""
    return crc32(session_id.encode()) % partitions

"""What a provider or the network did, as a `ModelError`.

| what happened | kind | retryable |
| --- | --- | --- |
| 401, 403 | provider_auth | no |
| 408, silence | provider_timeout | yes |
| 429 | provider_rate_limit | yes, unless the quota is used up |
| 409, 5xx | provider_server | yes |
| other 4xx | provider_request | no |
| no connection | provider_connection | yes |
| cut or malformed stream, error object in it | provider_stream, or as its code says | yes |
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Final

from changeover_shared._units import show_duration
from changeover_worker._models.model import ModelError

_REMEDY: Final = {
    "provider_auth": "check the API key and what it may do",
    "provider_rate_limit": "ask again later",
    "provider_server": "it may be asked again",
    "provider_timeout": "it may be asked again",
    "provider_connection": "check the address and the network; it may be asked again",
    "provider_stream": "the part that came is dropped; it may be asked again",
    "provider_request": "the same request will be refused again; change the model, tools or input",
}
_FINAL: Final = frozenset({"provider_auth", "provider_request"})
_STATUS_OF_WORD: Final = (
    ("quota", 429),
    ("api_key", 401),
    ("rate_limit", 429),
    ("overloaded", 529),
    ("server_error", 500),
    ("api_error", 500),
    ("timeout", 408),
    ("authentication", 401),
    ("permission", 403),
    ("invalid", 400),
    ("not_found", 404),
    ("context_length", 400),
    ("too_large", 413),
    ("policy", 400),
)
_ERROR_STATUS: Final = re.compile("[45][0-9][0-9]")
_SECRET: Final = re.compile(r"(?i)\b(bearer\s+\S+|(?:sk|pk|rk|key|tok|xai|gsk)[-_][\w*.\-]{4,})")
_LONGEST: Final = 300


def failure(
    name: str,
    kind: str,
    what: str,
    *,
    retryable: bool | None = None,
    retry_after: timedelta | None = None,
) -> ModelError:
    """Say what happened in the words of this package."""
    again = kind not in _FINAL if retryable is None else retryable
    wish = (
        "" if retry_after is None else f"; the provider asks to wait {show_duration(retry_after)}"
    )
    return ModelError(
        kind=kind,
        message=f"{name} {what}; {_REMEDY[kind]}{wish}",
        retryable=again,
        retry_after=retry_after,
    )


def kind_of_status(status: int) -> str:
    """Which kind of failure an HTTP status stands for."""
    if status in (401, 403):
        return "provider_auth"
    if status == 408:
        return "provider_timeout"
    if status == 429:
        return "provider_rate_limit"
    return "provider_server" if status >= 500 or status == 409 else "provider_request"


def status_failure(
    name: str, status: int, headers: Mapping[str, str], body: object, *, secret: str
) -> ModelError:
    """An answer with an error status, before any stream."""
    code, text = _described(body)
    return failure(
        name,
        kind_of_status(status),
        f"answered {status}{_after_colon(text, secret)}",
        # A used-up quota comes as 429 too, and does not come back by waiting.
        retryable=False if "quota" in code else None,
        retry_after=retry_after(headers),
    )


def stream_failure(name: str, error: object, *, secret: str) -> ModelError:
    """An error object inside a stream that had begun with status 200."""
    code, text = _described(error)
    said = f"broke off with an error{_after_colon(text or code, secret)}"
    status = int(code) if _ERROR_STATUS.fullmatch(code) else None
    for part, meaning in _STATUS_OF_WORD:
        if status is None and part in code:
            status = meaning
    kind = "provider_stream" if status is None else kind_of_status(status)
    return failure(name, kind, said, retryable=False if "quota" in code else None)


def foreign_failure(
    name: str, error: Exception, sdk: Any, *, started: bool, secret: str
) -> ModelError:
    """Any exception of an SDK or of the HTTP client below it.

    `started` is whether the answer's stream had begun.
    """
    import httpx2  # comes with either SDK, and not without

    if isinstance(error, sdk.APIStatusError) and error.status_code >= 400:
        return status_failure(
            name, error.status_code, error.response.headers, error.body, secret=secret
        )
    if isinstance(error, (sdk.APITimeoutError, httpx2.TimeoutException)):
        return failure(name, "provider_timeout", "was silent for longer than its timeout")
    if isinstance(error, (sdk.APIConnectionError, httpx2.RequestError)):
        kind = "provider_stream" if started else "provider_connection"
        what = "broke the stream off" if started else "could not be reached"
        return failure(name, kind, what + _after_colon(str(error.__cause__ or error), secret))
    if isinstance(error, sdk.APIError):
        return stream_failure(name, error.body, secret=secret)
    kind = "provider_stream" if started else "provider_request"
    what = "sent what cannot be read" if started else "could not be asked"
    return failure(name, kind, f"{what}: {type(error).__name__}{_after_colon(str(error), secret)}")


def retry_after(headers: Mapping[str, str]) -> timedelta | None:
    """Read how long a provider asks to be left alone: milliseconds, seconds or a date."""
    for field, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(field, "")) * unit
        except ValueError:
            continue
        if math.isfinite(seconds) and 0 <= seconds < 1e9:
            return timedelta(seconds=seconds)
    try:
        until = parsedate_to_datetime(headers.get("retry-after", ""))
    except (ValueError, OverflowError):  # no date, or of a year beyond all others
        return None
    return max(timedelta(0), until.replace(tzinfo=until.tzinfo or UTC) - datetime.now(UTC))


def _described(body: object) -> tuple[str, str]:
    """Find the code and the text in the error objects that providers send."""
    if isinstance(body, Mapping):
        inner = body.get("error")
        if isinstance(inner, Mapping):
            return _described(inner)
        words = [str(body[field]) for field in ("code", "type") if body.get(field) is not None]
        numeric = [each for each in words if each.isdecimal()]
        text = body.get("message") or inner or ""
        return (numeric or [" ".join(words).lower()])[0], str(text)
    return "", str(body or "")


def _after_colon(text: str, secret: str) -> str:
    if secret:
        text = text.replace(secret, "***")
    text = " ".join(_SECRET.sub("***", text).split())
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}…"
    return f": {text}" if text else ""

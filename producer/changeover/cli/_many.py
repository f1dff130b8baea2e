"""`changeover submit --many`: a file of messages, one JSON object a line.

A line without an id gets one from its content and from how many equal lines came before it, so
that the same file sent again repeats nothing, also after lines were added.
"""

from __future__ import annotations

import hashlib
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

from changeover._client import Client
from changeover._submission import Message, Submission
from changeover.cli._exits import code_of_refusal
from changeover.cli._output import note, say, say_json
from changeover_shared._errors import Invalid
from changeover_shared._exit_codes import DONE, ENDED_BADLY, UNANSWERED, WRONG_USAGE
from changeover_shared._items import Attachment, Json
from changeover_shared._policies import AnyPolicy, read_policy
from changeover_shared._results import Receipt, Refused
from changeover_shared._settings import Durability
from changeover_shared._units import Duration, read_time
from changeover_shared._words import Ending


class Line(BaseModel):
    """What a line may say."""

    model_config = ConfigDict(extra="forbid", strict=True)

    session: str
    text: str
    id: str | None = None
    agent: str | None = None
    queue: str | None = None
    model: str | None = None
    policy: str | None = None
    priority: int | None = None
    at: str | None = None
    delay: str | None = None
    reply_to: str | None = None
    author: str = "user"
    attachments: list[Attachment] = []
    context: dict[str, str] | None = None
    metadata: dict[str, Json] | None = None


@dataclass(frozen=True)
class Defaults:
    """What holds for lines that do not say otherwise."""

    agent: str | None
    model: str | None
    policy: AnyPolicy | None
    priority: int
    durability: Durability | None
    at: datetime | None = None
    delay: Duration | None = None
    reply_to: str | None = None


SHOWN: Final = 20
"""Of lines that are refused alike, so many are told one by one."""


@dataclass
class Tally:
    """What became of a file's lines."""

    accepted: int = 0
    duplicate: int = 0
    refused: int = 0
    problems: list[dict[str, Any]] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)
    endings: Counter[str] = field(default_factory=Counter)
    shown: Counter[str] = field(default_factory=Counter)
    """Code -> how many lines were refused with it."""

    def blame(self, line: int, code: str, text: str) -> None:
        """Note that a line was not accepted, and say so at once."""
        self.refused += 1
        self.problems.append({"line": line, "code": code, "message": text})
        self.shown[code] += 1
        if self.shown[code] <= SHOWN:
            note(f"line {line}: {text}", style="red")

    def say_what_is_left(self) -> None:
        """Say how many lines were refused alike, and how the file is sent to its end."""
        for code, count in self.shown.items():
            if count > SHOWN:
                note(f"{count - SHOWN} more lines: {code}; --json lists them", style="red")
        if self.shown["busy"]:
            note("send the same file again later: what was accepted is not repeated")

    def exit_code(self) -> int:
        """The gravest of what happened: unanswered, refused, malformed, ended badly."""
        codes = {code_of_refusal(problem["code"]) for problem in self.problems}
        if UNANSWERED in codes:
            return UNANSWERED
        if codes:
            return max(codes - {WRONG_USAGE}, default=WRONG_USAGE)
        return ENDED_BADLY if set(self.endings) - {Ending.COMPLETED.value} else DONE


async def submit_file(
    path: Path,
    defaults: Defaults,
    *,
    url: str | None,
    wait: bool,
    timeout: Duration | None,  # noqa: ASYNC109 - it leaves the work running
    as_json: bool,
) -> int:
    """Submit every line, report the bad ones and go on; the exit code.

    Raises `Invalid` when the file cannot be read, and `WaitTimeout`.
    """
    tally = Tally()
    with ExitStack() as stack:
        lines, total = _open(path, stack)
        async with Client(url) as client:
            bar = stack.enter_context(_progress())
            await _send(client, lines, defaults, tally, bar, total)
            if wait:
                await _await_endings(client, tally, bar, timeout)
    tally.say_what_is_left()
    tally.problems.sort(key=lambda problem: problem["line"])
    _summarise(tally, waited=wait, as_json=as_json)
    return tally.exit_code()


async def _send(
    client: Client,
    lines: Iterable[bytes],
    defaults: Defaults,
    tally: Tally,
    bar: Progress,
    total: int | None,
) -> None:
    task = bar.add_task("submitted", total=total)
    numbers: deque[int] = deque()

    def submissions() -> Iterator[Submission]:
        seen: Counter[str] = Counter()
        for number, raw in enumerate(lines, 1):
            if raw.strip():
                try:
                    item = parse(raw, defaults, seen)
                except ValueError as error:
                    tally.blame(number, "invalid", str(error))
                else:
                    numbers.append(number)
                    yield item
            bar.advance(task)

    async for answer in client.submit_many(submissions()):
        number = numbers.popleft()
        if isinstance(answer, Refused):
            tally.blame(number, answer.code, answer.text)
        else:
            tally.receipts.append(answer)
            tally.accepted += answer.answer == "accepted"
            tally.duplicate += answer.answer == "duplicate"


async def _await_endings(
    client: Client,
    tally: Tally,
    bar: Progress,
    timeout: Duration | None,  # noqa: ASYNC109 - as above
) -> None:
    task = bar.add_task("ended", total=len(tally.receipts))
    async for outcome in client.wait_many(tally.receipts, timeout=timeout):
        tally.endings[outcome.ending.value] += 1
        bar.advance(task)


def parse(raw: bytes, defaults: Defaults, seen: Counter[str]) -> Submission:
    """Read one line. `seen` counts equal lines. Raises `ValueError` that says what is wrong."""
    try:
        line = Line.model_validate_json(raw)
    except ValidationError as error:
        raise ValueError(_why(error)) from error
    digest = hashlib.sha256(raw.strip()).hexdigest()[:32]
    seen[digest] += 1
    # A line's own time takes the place of the one of the command line, whichever it is.
    own_time = line.at is not None or line.delay is not None
    default_at = None if own_time else defaults.at
    return Submission(
        line.session,
        Message(line.text, attachments=tuple(line.attachments), author=line.author),
        id=line.id or f"line:{digest}:{seen[digest]}",
        agent=line.agent or defaults.agent,
        queue=line.queue,
        policy=defaults.policy if line.policy is None else read_policy(line.policy),
        priority=defaults.priority if line.priority is None else line.priority,
        model=line.model or defaults.model,
        at=read_time(line.at, field="at") if line.at is not None else default_at,
        delay=line.delay if own_time else defaults.delay,
        durability=defaults.durability,
        reply_to=line.reply_to or defaults.reply_to,
        context=line.context,
        metadata=line.metadata,
    )


def _why(error: ValidationError) -> str:
    told = [
        f"{'.'.join(map(str, one['loc'])) or 'the line'}: {_wrong(one)}" for one in error.errors()
    ]
    return f"{'; '.join(told)}; it was not sent"


def _wrong(found: ErrorDetails) -> str:
    """What is wrong with one field."""
    if found["type"] == "extra_forbidden" and len(found["loc"]) == 1:
        return f"there is no such field; there are {', '.join(Line.model_fields)}"
    return found["msg"].removeprefix("Value error, ")


def _open(path: Path, stack: ExitStack) -> tuple[Iterable[bytes], int | None]:
    """The lines of a file or of stdin, and how many there are if that can be known."""
    if str(path) == "-":
        return sys.stdin.buffer, None
    try:
        total = None
        if path.is_file():
            with path.open("rb") as counted:
                total = sum(1 for _ in counted)
        return stack.enter_context(path.open("rb")), total
    except OSError as error:
        reason = f"{path} cannot be read: {error.strerror or error}"
        raise Invalid(field="--many", reason=reason) from error


def _progress() -> Progress:
    console = Console(stderr=True)
    return Progress(
        *(*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn()),
        console=console,
        disable=not console.is_terminal,
    )


def _summarise(tally: Tally, *, waited: bool, as_json: bool) -> None:
    counts = {
        "accepted": tally.accepted,
        "duplicate": tally.duplicate,
        "refused": tally.refused,
    }
    endings: Mapping[str, int] | None = dict(sorted(tally.endings.items())) if waited else None
    if as_json:
        say_json({**counts, "endings": endings, "problems": tally.problems})
        return
    parts = [f"{count} {word}" for word, count in counts.items()]
    say(" · ".join(parts))
    if endings is not None:
        say(
            " · ".join(f"{count} {word}" for word, count in endings.items())
            or "nothing to wait for"
        )

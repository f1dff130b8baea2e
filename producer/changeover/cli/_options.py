"""Options and panels that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final

import typer

START: Final = "START"
TALK: Final = "TALK"
LOOK: Final = "LOOK"
OPERATE: Final = "OPERATE"
KEEP: Final = "KEEP"

Redis = Annotated[
    str | None,
    typer.Option(
        "--redis",
        metavar="URL",
        help="Where Redis is. Default: CHANGEOVER_REDIS_URL, REDIS_URL, ./.changeover if there.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
Session = Annotated[str, typer.Argument(metavar="SESSION", help="The session's id.")]
Agent = Annotated[
    str | None, typer.Option("--agent", help="Who answers, when the session is created.")
]
ReplyTo = Annotated[
    str | None,
    typer.Option("--reply-to", metavar="CHANNEL", help="Where the answer goes, by its outcome."),
]
Limit = Annotated[int, typer.Option("--limit", min=1, max=1000, help="How many.")]


def one_of(*words: str) -> Callable[[str], str]:
    """A parser of an option that takes one of a few words."""

    def parse(word: str) -> str:
        if word not in words:
            raise typer.BadParameter(f"{word!r} is not one of {', '.join(words)}")
        return word

    return parse

"""The command: one act, its verdict, and an exit code that says whether every promise was kept."""

from __future__ import annotations

import asyncio
import signal
from typing import Annotated, Final

import typer

from changeover.cli._demo import _acts
from changeover.cli._demo._failed import DemoFailed
from changeover.cli._demo._fleet import demo_fleet
from changeover.cli._demo._story import Story
from changeover.cli._demo._verdict import Act, Verdict, judge
from changeover.cli._entry_points import require_parts
from changeover.cli._options import Json, one_of
from changeover.cli._output import say_json
from changeover_shared._exit_codes import DONE, ENDED_BADLY, INTERRUPTED
from changeover_shared._server.url import EMBEDDED_URL

_ACTS: Final = {"kill": _acts.kill, "freeze": _acts.freeze, "drain": _acts.drain}


def demo(
    act: Annotated[
        Act,
        typer.Option(
            "--act",
            parser=one_of(*_ACTS),
            metavar="|".join(_ACTS),
            help="What happens to the worker.",
        ),
    ] = "kill",
    redis: Annotated[
        str | None,
        typer.Option("--redis", metavar="URL", help="Default: embedded, in ./.changeover."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Watch a worker die in mid-turn and the session go on.

    Real processes and real signals; the model is scripted. Ends with 1 if a promise was broken.
    """
    require_parts("changeover demo", redis or EMBEDDED_URL)
    try:
        code = asyncio.run(_perform(act, redis, as_json=as_json))
    except asyncio.CancelledError:
        code = INTERRUPTED
    raise typer.Exit(code)


async def _perform(act: Act, url: str | None, *, as_json: bool) -> int:
    _end_children_on_term()
    story = Story(silent=as_json)
    async with demo_fleet(url) as fleet:
        try:
            verdict = judge(act, await _ACTS[act](fleet, story))
        except DemoFailed as error:
            verdict = Verdict.failed(str(error))
        if as_json:
            say_json(
                {
                    "act": act,
                    "session_id": fleet.session_id,
                    "kept": [check.kept for check in verdict.checks if check.wrong is None],
                    "broken": list(verdict.broken),
                }
            )
        story.verdict(verdict.kept, verdict.broken)
        if not verdict.broken:
            story.next(fleet.session_id, "|".join(name for name in _ACTS if name != act))
    return ENDED_BADLY if verdict.broken else DONE


def _end_children_on_term() -> None:
    """Let SIGTERM end the act as Ctrl-C does, or a stopped worker would stay behind."""
    performance = asyncio.current_task()
    assert performance is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, performance.cancel)

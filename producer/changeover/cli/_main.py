"""`changeover`: which commands there are, and what the process says when it ends."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from changeover.cli import (
    _acl,
    _chat,
    _context,
    _demo,
    _dev,
    _doctor,
    _follow,
    _life,
    _look,
    _payload_keys,
    _quarantine,
    _queues,
    _replace,
    _schedules,
    _show,
    _submit,
    _talk,
    _top,
    _version,
)
from changeover.cli._entry_points import about, add_entry_points
from changeover.cli._exits import end_with
from changeover.cli._options import KEEP, LOOK, OPERATE, START, TALK
from changeover_shared._exit_codes import INTERRUPTED

_HELP = "Agent sessions that outlive their workers."


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code. No traceback reaches a user."""
    args = list(sys.argv[1:] if argv is None else argv)
    as_json = "--json" in args[: args.index("--")] if "--" in args else "--json" in args
    try:
        command = typer.main.get_command(build(args[0] if args else None))
        command.main(args, prog_name="changeover")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        return end_with(error, as_json=as_json)
    return 0


def build(wanted: str | None) -> typer.Typer:
    """All commands. Those of entry points are imported only when they are `wanted`.

    Raises `ExtraMissing` when the wanted one cannot be imported.
    """
    app = typer.Typer(
        name="changeover",
        help=_HELP,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
    )
    app.callback()(_options)
    _add(app, START, _demo.demo)
    _add(app, START, _dev.dev)
    add_entry_points(app, wanted)
    _add(app, TALK, _submit.submit)
    _add(app, TALK, _chat.chat)
    _add(app, TALK, _follow.follow)
    _add(app, TALK, _talk.interrupt)
    _add(app, TALK, _talk.cancel)
    _add(app, TALK, _schedules.schedule)
    _add(app, TALK, _schedules.unschedule)
    _add(app, LOOK, _look.sessions)
    _add(app, LOOK, _show.show)
    _add(app, LOOK, _look.explain)
    _add(app, LOOK, _look.workers)
    _add(app, LOOK, _queues.queues)
    _add(app, LOOK, _top.top)
    _add(app, LOOK, _schedules.schedules)
    _add(app, LOOK, _version.version)
    _add(app, OPERATE, _replace.drain)
    _add(app, OPERATE, _replace.evict)
    _add(app, OPERATE, _queues.pause)
    _add(app, OPERATE, _queues.resume)
    _add(app, OPERATE, _quarantine.quarantine)
    _add(app, OPERATE, _quarantine.redrive)
    _add(app, OPERATE, _context.compact)
    _add(app, OPERATE, _context.rollback)
    _add(app, OPERATE, _life.close)
    _add(app, OPERATE, _life.delete)
    _add(app, KEEP, _doctor.doctor)
    _add(app, KEEP, _life.purge)
    _add(app, KEEP, _acl.acl)
    _add(app, KEEP, _payload_keys.payload_keys)
    return app


def _add(app: typer.Typer, panel: str, command: Callable[..., None]) -> None:
    name = command.__name__.replace("_", "-")
    app.command(name, help=about(command), rich_help_panel=panel)(command)


def _say_version(wanted: bool) -> None:
    if wanted:
        _version.version()
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_say_version, is_eager=True, help="The same as `version`."
        ),
    ] = False,
) -> None:
    """Agent sessions that outlive their workers."""

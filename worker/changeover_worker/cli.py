"""`changeover worker`: found through the entry-point group `changeover.cli`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer
from structlog.typing import FilteringBoundLogger

from changeover_shared._dump import dump
from changeover_shared._errors import (
    AppFailed,
    ExtraMissing,
    Invalid,
    KeyMissing,
    SetupError,
    StoreUnavailable,
)
from changeover_shared._exit_codes import BUG, MENDABLE, MISCONFIGURED, UNANSWERED
from changeover_shared._server.url import redis_url
from changeover_shared._settings import Settings, misspelt, read_settings
from changeover_worker._app_loading import AppBroken, load_app
from changeover_worker._process.log import make_log
from changeover_worker._process.name import default_name
from changeover_worker._process.serve import serve
from changeover_worker._process.service import ServiceManager
from changeover_worker._process.supervisor import Supervisor

_PASSED_ON = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)


def worker(
    app: Annotated[
        str | None,
        typer.Argument(
            metavar="APP", help="The app, as module:attribute. Default: CHANGEOVER_APP."
        ),
    ] = None,
    queue: Annotated[
        list[str] | None,
        typer.Option("--queue", "-q", help="A queue to serve. Default: the app's agents."),
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", "-c", help="Sessions held at once. Default: 200.")
    ] = None,
    processes: Annotated[
        int | None, typer.Option("--processes", "-p", help="Worker processes. Default: 1.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="What it is called. Default: w<pid>@<host>.")
    ] = None,
    build: Annotated[
        str | None, typer.Option("--build", help="Which release of the app it runs.")
    ] = None,
    burst: Annotated[
        bool, typer.Option("--burst", help="Stop when there is nothing left to do.")
    ] = False,
    redis: Annotated[
        str | None,
        typer.Option(
            "--redis",
            metavar="URL",
            help="Where Redis is. "
            "Default: CHANGEOVER_REDIS_URL, REDIS_URL, ./.changeover if there.",
        ),
    ] = None,
    incarnation: Annotated[str | None, typer.Option("--incarnation", hidden=True)] = None,
    parent: Annotated[int | None, typer.Option("--parent", hidden=True)] = None,
    dev: Annotated[bool, typer.Option("--dev", hidden=True)] = False,
) -> None:
    """Run sessions.

    TERM or Ctrl-C hands them off at their next step and exits 0; a second one does it at once
    and exits 75. 78 means: will not start with this configuration, do not restart.
    """
    try:
        settings = read_settings(
            app=app,
            queues=tuple(queue) if queue else None,
            concurrency=concurrency,
            processes=processes,
            worker_name=name,
            build=build,
        )
        url = redis_url(redis, settings)
        log = make_log(settings)
        for name, meant in misspelt(os.environ).items():
            log.warning("warning", code="unknown_setting", name=name, text=f"is {meant} meant?")
        service = ServiceManager.of(os.environ)
        target = _target(settings)
        if settings.processes > 1:
            code = asyncio.run(_supervise(target, settings, url, log, service, burst=burst))
        else:
            code = serve(
                load_app(target),
                settings,
                url,
                log,
                incarnation=incarnation,
                parent=parent,
                burst=burst,
                service=service,
            )
    except (SetupError, Invalid) as error:
        _refuse(error, MENDABLE if dev and mendable(error) else MISCONFIGURED)
    except StoreUnavailable as error:
        _refuse(error, UNANSWERED)
    except Exception as error:
        make_log(read_settings()).exception("warning", code="worker_crashed")
        said = f"this is a bug: {type(error).__name__}; please report it with {dump(error)}"
        typer.echo(f"changeover worker: {said}", err=True)
        raise typer.Exit(BUG) from None
    raise typer.Exit(code)


def _target(settings: Settings) -> str:
    if settings.app is None:
        raise Invalid(
            field="app",
            reason="no app was named; write changeover worker module:app or set CHANGEOVER_APP",
            unchanged="nothing was started",
        )
    return settings.app


def mendable(error: Exception) -> bool:
    """Whether the error came from the app's own code, so that an edit of it may help."""
    if isinstance(error, AppBroken):
        return not isinstance(error.__cause__, ExtraMissing | KeyMissing)
    return isinstance(error, Invalid | AppFailed)


def _refuse(error: Exception, code: int) -> NoReturn:
    typer.echo(f"changeover worker: {error}", err=True)
    raise typer.Exit(code) from None


async def _supervise(
    target: str,
    settings: Settings,
    url: str,
    log: FilteringBoundLogger,
    service: ServiceManager,
    *,
    burst: bool,
) -> int:
    supervisor = Supervisor(
        child_command(target, settings, burst=burst),
        settings,
        url,
        name=settings.worker_name or default_name(),
        burst=burst,
        log=log,
        service=service,
        # Not on the command line, where everybody could read a password in it.
        environment={"CHANGEOVER_REDIS_URL": url},
    )
    loop = asyncio.get_running_loop()
    for number in _PASSED_ON:
        loop.add_signal_handler(number, supervisor.pass_on, number)
    return await supervisor.run()


def child_command(target: str, settings: Settings, *, burst: bool) -> Sequence[str]:
    """The command that starts one supervised worker with the settings of this process."""
    command = [sys.executable, "-m", "changeover_worker", target, "--processes", "1"]
    command += ["--concurrency", str(settings.concurrency)]
    for queue in settings.queues:
        command += ["--queue", queue]
    if settings.build:
        command += ["--build", settings.build]
    if burst:
        command.append("--burst")
    return command

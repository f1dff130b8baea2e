"""The app's lifespan: entered before anything is claimed, left when everything was handed off."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from structlog.typing import FilteringBoundLogger

from changeover_shared._errors import AppFailed
from changeover_worker._app import App
from changeover_worker._app_loading import why


@asynccontextmanager
async def resources_of(app: App, log: FilteringBoundLogger) -> AsyncIterator[Any]:
    """Hold what the lifespan yields. Raises `AppFailed` when it cannot be entered.

    When it cannot be left in order, that is logged: nothing of ours depends on it any more.
    """
    try:
        lifespan = app.lifespan()
        resources = await lifespan.__aenter__()
    except (Exception, SystemExit) as error:
        log.exception("warning", code=AppFailed.code)
        raise AppFailed(reason=why(error)) from error
    try:
        yield resources
    finally:
        try:
            await lifespan.__aexit__(None, None, None)
        except (Exception, SystemExit):
            log.exception("warning", code=AppFailed.code)

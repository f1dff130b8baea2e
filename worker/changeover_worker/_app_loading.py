"""How a worker finds its app, and how it says where somebody else's code failed."""

from __future__ import annotations

import importlib
import sys
import sysconfig
from operator import attrgetter
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Final

import changeover_shared
from changeover_shared._errors import AppNotFound, SetupError
from changeover_worker._app import App

_FOREIGN: Final = (
    *{sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")},
    *changeover_shared.__path__,
    str(Path(__file__).parent),
)
"""Where files lie that are not the application's own."""


class AppBroken(AppNotFound):
    """The app's module is there and raised while it was imported."""

    def __init__(self, *, target: str, reason: str) -> None:
        SetupError.__init__(
            self,
            f"the app at {target!r} cannot be imported: {reason}; nothing was claimed; "
            "put that right and start the worker again",
        )
        self.target = target


def load_app(target: str) -> App:
    """Import the app at `module:attribute`, with the current directory on the path.

    Raises `AppNotFound`, which names the line that failed, whatever the module does.
    """
    module_name, _, attribute = target.partition(":")
    if not module_name or not attribute:
        raise AppNotFound(target=target, reason="it is not of the form module:attribute")
    module = _import(module_name, target)
    try:
        app = attrgetter(attribute)(module)
    except AttributeError as error:
        raise AppNotFound(target=target, reason=f"{error}{_apps_in(module)}") from error
    if not isinstance(app, App):
        kind = type(app).__name__
        raise AppNotFound(target=target, reason=f"it is a {kind}, not an App{_apps_in(module)}")
    return app


def _import(name: str, target: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except ModuleNotFoundError as error:
        missing = error.name is not None and f"{name}.".startswith(f"{error.name}.")
        kind = AppNotFound if missing else AppBroken
        raise kind(target=target, reason=why(error)) from error
    except BaseException as error:
        raise AppBroken(target=target, reason=why(error)) from error


def why(error: BaseException) -> str:
    """The exception and the line of the application's code that it came from."""
    kind = type(error).__name__
    told = f"{kind}: {error.msg if isinstance(error, SyntaxError) else error}"
    place = _place(error)
    return f"{told} ({place})" if place else told


def _place(error: BaseException) -> str | None:
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    lines = [
        f"{f.filename}:{f.lineno}" for f in extract_tb(error.__traceback__) if _own(f.filename)
    ]
    return lines[-1] if lines else None


def _own(filename: str) -> bool:
    """Whether a file is the application's, not Python's, an installed package's or ours."""
    return not filename.startswith("<") and not any(
        Path(filename).is_relative_to(path) for path in _FOREIGN
    )


def _apps_in(module: ModuleType) -> str:
    found = [name for name, value in vars(module).items() if isinstance(value, App)]
    return f"; {module.__name__} has the app {', '.join(found)}" if found else ""

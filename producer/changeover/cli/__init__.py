"""The command line. Nothing here talks to a worker: commands read and write Redis."""

from changeover.cli._main import main

__all__ = ["main"]

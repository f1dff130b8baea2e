"""`python -m changeover_worker`: the same as `changeover worker`."""

from __future__ import annotations

import typer

from changeover_worker.cli import worker

if __name__ == "__main__":
    typer.run(worker)

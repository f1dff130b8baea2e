"""What counts as a change of an app's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from changeover.cli import _changes
from changeover.cli._changes import Changes


@pytest.fixture(autouse=True)
def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_changes, "LOOK_S", 0.01)


async def test_a_change_names_its_file_even_when_it_came_before_the_wait(tmp_path: Path) -> None:
    below = tmp_path / "pkg" / "bot.py"
    below.parent.mkdir()
    below.write_text("old")
    changes = Changes(tmp_path)
    below.write_text("new text")
    assert await changes.next() == "pkg/bot.py"
    below.unlink()
    assert await changes.next() == "pkg/bot.py"


async def test_installed_packages_hidden_folders_and_other_files_do_not_count(
    tmp_path: Path,
) -> None:
    changes = Changes(tmp_path)
    for folder in (".venv", "venv", "__pycache__", "node_modules"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.py").write_text("x")
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "z.py").write_text("x")
    assert await changes.next() == "z.py"

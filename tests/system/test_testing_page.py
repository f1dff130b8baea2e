"""What the page on testing shows is what runs."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from types import ModuleType

import pytest

from changeover_worker.testing import sweep
from tests.support.processes import ROOT

EXAMPLE = ROOT / "examples" / "test_refunds.py"
PAGE = (ROOT / "docs" / "testing.md").read_text("utf-8")


def load(text: str) -> ModuleType:
    """The example's module, as its text says."""
    spec = importlib.util.spec_from_loader("refunds", loader=None)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["refunds"] = module  # where the annotations of its tools are looked up
    exec(compile(text, str(EXAMPLE), "exec"), module.__dict__)
    return module


def test_the_page_shows_the_example_as_it_is() -> None:
    assert EXAMPLE.read_text("utf-8").rstrip() in PAGE


def test_the_example_passes(capsys: pytest.CaptureFixture[str]) -> None:
    load(EXAMPLE.read_text("utf-8")).test_a_refund_is_paid_once_wherever_its_worker_dies()
    assert capsys.readouterr().out.startswith("8 store calls, 56 cases, ")


def test_the_mistake_that_the_page_makes_is_told_as_the_page_says() -> None:
    text = EXAMPLE.read_text("utf-8").replace("if ctx.idempotency_key not in PAID:", "if True:")
    text = text.replace("assert len(PAID) == 1", 'assert len(PAID) == 1, f"paid {len(PAID)} times"')
    module = load(text)
    with pytest.raises(AssertionError) as failure:
        asyncio.run(sweep(module.one_refund, module.app))
    assert f"AssertionError: {failure.value}" in PAGE

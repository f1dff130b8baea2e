from __future__ import annotations

import sys
from pathlib import Path

import pytest

from changeover_shared import _identifiers
from changeover_shared._errors import (
    AppFailed,
    AppNotFound,
    Invalid,
    KeyMissing,
    LeaseExpired,
    LeaseGone,
    LeaseLost,
    ServerUnfit,
)
from changeover_shared._results import WorkerInfo
from changeover_shared._settings import Settings
from changeover_shared._store.records import Lease, Renewed
from changeover_worker._app_loading import AppBroken, load_app
from changeover_worker._process.keeper import batches, loss, trust
from changeover_worker._process.name import default_name
from changeover_worker._process.serve import exit_code
from changeover_worker._process.silence import Silence
from changeover_worker._process.supervisor import backoff, verdict
from changeover_worker._process.sweep import live_routes
from changeover_worker._process.worker import WorkerEnd
from changeover_worker._session.held import Held
from changeover_worker.cli import child_command, mendable


def test_trust_starts_with_the_attempt_and_ends_before_the_lease() -> None:
    """Hole 21."""
    assert trust(100.0, 30_000, 3.0) == 127.0


def test_a_lease_that_stands_is_no_loss() -> None:
    assert loss(Renewed("s", "OK", 30_000), 7) is None


def test_each_refusal_of_a_renewal_has_its_own_error() -> None:
    lost = loss(Renewed("s", "LOST", fence=8), 7)
    assert isinstance(lost, LeaseLost)
    assert (lost.fence, lost.current) == (7, 8)
    assert isinstance(loss(Renewed("s", "GONE"), 7), LeaseGone)
    assert isinstance(loss(Renewed("s", "EXPIRED"), 7), LeaseExpired)


async def test_renewals_go_by_partition_in_calls_of_at_most_two_hundred() -> None:
    held = [held_in(n % 2, n) for n in range(450)]
    calls = [(partition, len(group)) for partition, group in batches(held)]
    assert calls == [(0, 200), (0, 25), (1, 200), (1, 25)]
    assert {one for _, group in batches(held) for one in group} == set(held)


def held_in(partition: int, n: int) -> Held:
    return Held(Lease(f"s:{n}", 1, "w:1", "n", "q@1"), partition, trusted_until=0.0)


def test_a_silence_counts_only_when_it_lasts() -> None:
    """Hole 42: without a bell for three seconds everybody looks for work."""
    now = 0.0
    silence = Silence(lambda: now)
    assert not silence.lasts
    silence.note(answered=False)
    now = 2.9
    silence.note(answered=False)
    assert not silence.lasts
    now = 3.0
    assert silence.lasts
    silence.note(answered=True)
    assert not silence.lasts


def test_the_sweep_looks_after_the_routes_of_those_alive_and_its_own() -> None:
    alive = WorkerInfo(worker="a", incarnation="a:1", queues=("x", "y"), renewed_at_ms=90)
    dead = WorkerInfo(worker="b", incarnation="b:1", queues=("z",), renewed_at_ms=10)
    assert live_routes([alive, dead], ["y@1"], now_ms=100, silent_ms=30) == ("y@1", "x@1")


def test_the_first_death_is_replaced_at_once_and_quick_ones_ever_more_slowly() -> None:
    assert backoff(0) == 0
    assert backoff(1) == 0.5
    assert backoff(2) == 1.0
    assert backoff(20) == 30.0


@pytest.mark.parametrize(
    ("codes", "code"),
    [([0, 0], 0), ([0, 1], 1), ([1, 75], 75), ([75, 78, 0], 78), ([], 0)],
)
def test_a_supervisor_says_the_gravest_thing_that_a_child_said(codes: list[int], code: int) -> None:
    assert verdict(codes) == code


@pytest.mark.parametrize(
    ("forced", "failed", "burst", "code"),
    [(False, 0, False, 0), (False, 3, False, 0), (False, 3, True, 1), (True, 3, True, 75)],
)
def test_the_exit_code_says_how_a_worker_ended(
    forced: bool, failed: int, burst: bool, code: int
) -> None:
    assert exit_code(WorkerEnd(forced=forced, failed_turns=failed), burst=burst) == code


def test_a_worker_without_a_name_gets_a_valid_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "höst_{1}" + "x" * 80 + ".example.org")
    assert _identifiers.worker_name(f"{default_name()}-256").startswith("w")


def test_a_child_is_started_with_what_its_supervisor_was_told() -> None:
    settings = Settings(queues=("a", "b"), concurrency=7, processes=3, build="1.5")
    assert child_command("bot:app", settings, burst=True)[1:] == [
        *("-m", "changeover_worker", "bot:app", "--processes", "1", "--concurrency", "7"),
        *("--queue", "a", "--queue", "b", "--build", "1.5", "--burst"),
    ]


@pytest.mark.parametrize(
    ("error", "helps"),
    [
        (AppBroken(target="bot:app", reason="SyntaxError: invalid syntax"), True),
        (AppFailed(reason="no database"), True),
        (Invalid(field="model", reason="there is no model 'm'"), True),
        (AppNotFound(target="bot:app", reason="No module named 'bot'"), False),
        (KeyMissing(what="openai:m", variable="OPENAI_API_KEY"), False),
        (ServerUnfit(["it evicts keys"]), False),
    ],
)
def test_an_edit_helps_only_against_what_the_apps_own_code_raised(
    error: Exception, helps: bool
) -> None:
    assert mendable(error) is helps


def test_a_key_that_is_missing_while_the_app_is_imported_is_not_the_apps_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    (tmp_path / "keyless_app.py").write_text(
        "from changeover_shared._errors import KeyMissing\n"
        "raise KeyMissing(what='openai:m', variable='OPENAI_API_KEY')\n"
    )
    with pytest.raises(AppBroken) as caught:
        load_app("keyless_app:app")
    assert not mendable(caught.value)


def test_an_app_that_raises_is_not_said_to_be_named_wrongly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    (tmp_path / "raising_app.py").write_text("1 / 0\n")
    with pytest.raises(AppBroken) as caught:
        load_app("raising_app:app")
    assert str(caught.value) == (
        "the app at 'raising_app:app' cannot be imported: ZeroDivisionError: division by zero "
        f"({tmp_path}/raising_app.py:1); nothing was claimed; "
        "put that right and start the worker again"
    )

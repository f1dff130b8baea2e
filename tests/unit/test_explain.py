"""Why a session waits: every code from the facts that lead to it, and no I/O."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from changeover._explain import explain
from changeover._explanation import Backlog, Explanation
from changeover._hindrances import on_a_replica
from changeover.cli._look import facts_line
from changeover.cli._output import clock
from changeover_shared._checkpoint import Checkpoint, Execution, Retry, encode_checkpoint
from changeover_shared._events import SessionQuarantined
from changeover_shared._results import Pause, WorkerInfo
from changeover_shared._store.records import Head, Snapshot, Wait, Waiting, Work
from changeover_shared._store.scripts import script
from changeover_shared._words import SUSPECT_AFTER, Status

NOW = 1_000_000


def head(**given: Any) -> Head:
    values: dict[str, Any] = {
        "status": Status.READY,
        "life": 1,
        "route": "triage@1",
        "agent": "triage",
        "tenant": "",
        "priority": 0,
        "fence": 3,
        "rev": 11,
        "seq": 48,
        "first_seq": 1,
        "n": 1,
        "turn": "",
        "turns": 2,
        "transcript_n": 4,
        "ctl_turn": "",
        "ctl_kind": "",
        "ctl_sub": "",
        "ctl_epoch": 0,
        "parked": False,
        "attempts": 0,
        "epoch": 1,
        "context": "{}",
        "parent": "",
        "created_ms": NOW - 90_000,
        "at_ms": NOW - 41_000,
    }
    return Head(**{**values, **given})


def waiting(due_ms: int = 0) -> Waiting:
    return Waiting(1, "turn", due_ms, "", "", "m:1", "", 5)


def worker(name: str, **given: Any) -> WorkerInfo:
    values: dict[str, Any] = {
        "worker": name,
        "incarnation": f"{name}:00000000",
        "queues": ("triage",),
        "agents": ("triage",),
        "slots": 200,
        "sessions": 3,
        "renewed_at_ms": NOW - 2_000,
    }
    return WorkerInfo(**{**values, **given})


def told(
    *workers: WorkerInfo,
    backlog: Backlog = (0, 1),
    inputs: tuple[Waiting, ...] = (),
    waits: tuple[Wait, ...] = (),
    owner: str = "",
    lease_ms: int = 0,
    paused: Pause | None = None,
    **fields: Any,
) -> Explanation:
    snapshot = Snapshot(
        session_id="triage:77",
        head=head(**fields),
        work=Work(inputs, waits),
        owner=owner,
        lease_ms=lease_ms,
        checkpoint=None,
    )
    return explain(snapshot, workers, backlog, NOW, paused=paused)


def test_a_session_with_nothing_to_do_is_idle() -> None:
    said = told(worker("a"), status=Status.IDLE)
    assert (said.code, said.text, said.remedy) == (
        "idle",
        "triage:77 is idle: nothing waits",
        None,
    )


def test_every_explanation_carries_the_facts() -> None:
    said = told(worker("a"), status=Status.IDLE, attempts=2)
    assert said.facts == {
        "agent": "triage",
        "queue": "triage",
        "fence": 3,
        "seq": 48,
        "revision": 11,
        "inbox": 0,
        "turn": None,
        "attempts": 2,
        "updated_ms_ago": 41_000,
    }


def test_a_queue_that_no_living_worker_serves_is_named_with_the_command_for_it() -> None:
    said = told(
        worker("a", queues=("assistant",)),
        worker("b", state="silent"),
        worker("c", state="draining"),
        inputs=(waiting(),),
        backlog=(0, 9_812),
    )
    assert said.code == "no_worker_for_queue"
    assert said.text == "triage:77 is ready and has waited 41 s: no worker serves its queue triage"
    assert said.remedy == "changeover worker APP -q triage"
    assert (said.facts["ready"], said.facts["serving"], said.facts["alive"]) == (9_812, [], 2)


def test_an_agent_that_no_worker_of_the_queue_has_is_named() -> None:
    said = told(worker("a", agents=("support",)), worker("b", queues=("x",)))
    assert said.code == "no_worker_for_agent"
    assert "no worker of queue triage has its agent triage" in said.text
    assert said.remedy == (
        "add the agent triage to the app of the workers of triage; if the name is wrong, "
        "use another session with the right --agent"
    )


def test_an_agent_that_no_worker_at_all_has_may_be_a_wrong_name() -> None:
    said = told(worker("a", queues=("x",), agents=("support",)))
    assert said.code == "no_worker_for_queue"
    assert said.text.endswith("no worker serves its queue triage, and none has its agent triage")
    assert said.remedy == (
        "start a worker of an app that has the agent triage: changeover worker APP -q triage; "
        "if the name is wrong, use another session with the right --agent"
    )
    assert told().remedy == "changeover worker APP -q triage"


def test_a_session_in_the_line_says_its_position() -> None:
    said = told(worker("a"), backlog=(2, 12))
    assert said.code == "waiting_for_slot"
    assert said.text == (
        "triage:77 is ready and has waited 41 s for a free slot: position 3 of 12 in its partition"
    )
    assert (said.remedy, said.facts["position"]) == (None, 3)


def test_a_suspect_waits_for_a_worker_that_holds_nothing_else() -> None:
    said = told(worker("a"), backlog=(None, 12), attempts=3)
    assert said.code == "waiting_for_slot"
    assert "for a worker that holds nothing else, after 3 grants without progress" in said.text
    assert said.facts["position"] is None


def test_full_workers_are_a_reason_to_start_another() -> None:
    said = told(worker("a", sessions=200), worker("b", sessions=200))
    assert (said.code, said.remedy) == (
        "waiting_for_slot",
        "start another worker, or raise CHANGEOVER_CONCURRENCY",
    )


def test_a_session_of_a_paused_queue_waits_for_its_resume() -> None:
    why = Pause(by="ops", reason="provider outage", since_ms=NOW - 180_000)
    for workers in ((worker("a"),), ()):
        said = told(*workers, paused=why)
        assert (said.code, said.remedy) == ("queue_paused", "changeover resume triage")
        assert "its queue triage is paused by ops 3 m ago: provider outage" in said.text
        assert said.facts["paused_by"] == "ops"
    held = told(worker("a"), status=Status.HELD, owner="3|a:00000000|n", lease_ms=NOW, paused=why)
    assert held.code != "queue_paused"


@pytest.mark.parametrize(
    ("kind", "code", "whose"),
    [("tenant", "tenant_limit", "tenant acme"), ("queue", "queue_limit", "queue triage")],
)
@pytest.mark.parametrize("status", [Status.IDLE, Status.READY, Status.PARKED])
def test_a_session_whose_tenant_or_queue_runs_as_many_as_it_may_says_so(
    kind: str, code: str, whose: str, status: Status
) -> None:
    raw = {"deferred": kind, "not_before": str(NOW + 900)}
    said = told(worker("a"), inputs=(waiting(),), tenant="acme", status=status, raw=raw)
    assert said.code == code and whose in said.text
    assert f"CHANGEOVER_{kind.upper()}_CONCURRENCY" in (said.remedy or "")
    old = told(
        worker("a"), status=status, inputs=(waiting(),), raw={**raw, "not_before": str(NOW - 6000)}
    )
    assert old.code != code


def test_a_session_of_a_newer_format_waits_for_the_newer_release() -> None:
    said = told(worker("a"), route="triage@2")
    assert said.code == "format_too_new"
    assert "written in format 2, this release reads 1" in said.text
    assert said.facts["queue"] == "triage"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"inputs": (waiting(NOW + 60_000),)}, "scheduled"),
        ({"inputs": (replace(waiting(NOW + 1_000), key="debounce"),)}, "debouncing"),
        ({"inputs": (waiting(NOW - 1),)}, "waiting_for_slot"),
        ({"inputs": (waiting(),), "raw": {"not_before": str(NOW + 4_000)}}, "scheduled"),
        ({"turn": "t_3", "raw": {"not_before": str(NOW + 4_000)}}, "scheduled"),
    ],
)
def test_an_idle_session_with_work_waits_for_its_time(fields: Any, code: str) -> None:
    assert told(worker("a"), status=Status.IDLE, **fields).code == code


def test_the_time_that_a_session_waits_for_is_said() -> None:
    said = told(worker("a"), status=Status.IDLE, inputs=(waiting(NOW + 300_000),))
    assert said.text == "triage:77 waits for its time: due in 5 m"


def test_a_session_that_no_worker_could_run_says_that_and_not_its_pause() -> None:
    said = told(
        worker("a", agents=("support",)),
        status=Status.IDLE,
        inputs=(waiting(),),
        raw={"not_before": str(NOW + 4_000)},
    )
    assert said.code == "no_worker_for_agent"


def test_a_held_session_is_running_on_its_holder() -> None:
    said = told(worker("a"), status=Status.HELD, owner="3|a:00000000|abc", lease_ms=NOW + 20_000)
    assert (said.code, said.text) == ("running", "triage:77 is running on a:00000000")


def test_a_holder_that_drains_hands_off() -> None:
    said = told(
        worker("a", state="draining"),
        status=Status.HELD,
        owner="3|a:00000000|abc",
        lease_ms=NOW + 20_000,
    )
    assert said.code == "handing_off"


def test_a_silent_holder_is_named_with_the_time_of_the_takeover() -> None:
    said = told(
        worker("a", state="silent", renewed_at_ms=NOW - 24_000),
        status=Status.HELD,
        owner="3|a:00000000|abc",
        lease_ms=NOW + 6_000,
    )
    assert (said.code, said.text) == (
        "holder_silent",
        "triage:77 is held by a:00000000, silent for 24 s: takeover in 6.0 s at the latest",
    )


def test_a_lease_that_is_over_needs_a_worker_that_looks() -> None:
    held: dict[str, Any] = {"status": Status.HELD, "owner": "3|a:00000000|abc", "lease_ms": NOW - 1}
    assert told(worker("b"), **held).remedy is None
    alone = told(worker("b", state="silent"), **held)
    assert (alone.code, alone.remedy) == ("holder_silent", "changeover worker APP")


def test_a_parked_session_says_what_it_waits_for() -> None:
    said = told(status=Status.PARKED, turn="t_3", waits=(Wait("apr_1", "approval", 0, "", 0),))
    assert (said.code, said.text) == (
        "parked",
        "triage:77 is parked: it waits for approval apr_1",
    )


@pytest.mark.parametrize(
    ("wait", "why"),
    [("retry", "the model failed and is asked again"), ("nap", "it goes on")],
)
def test_a_session_parked_until_a_time_says_how_long_and_how_to_end_it(wait: str, why: str) -> None:
    timer = Wait(wait, "timer", NOW + 27_000, "", 0)
    said = told(worker("a"), status=Status.PARKED, turn="t_3", waits=(timer,))
    assert (said.code, said.text) == ("parked_timer", f"triage:77 is parked: {why} in 27 s")
    assert said.remedy == "wait, or end its turn: changeover interrupt triage:77"
    assert (said.facts["wait"], said.facts["until_ms"]) == (wait, NOW + 27_000)


@pytest.mark.parametrize(
    ("left_ms", "when"), [(27_000, "in 27 s"), (0, "as soon as a worker looks, its time is over")]
)
def test_a_parked_session_whose_queue_nobody_serves_says_so(left_ms: int, when: str) -> None:
    timer = Wait("nap", "timer", NOW + left_ms, "", 0)
    said = told(
        worker("a", queues=("other",)), worker("b", state="silent"),
        status=Status.PARKED, turn="t_3", waits=(timer,),
    )  # fmt: skip
    assert (said.code, said.text) == (
        "parked_timer",
        f"triage:77 is parked: it goes on {when}; no worker serves its queue triage",
    )
    assert said.remedy == "changeover worker APP -q triage"


def parked_for_a_model(**given: Any) -> Snapshot:
    retry = Retry.model_validate({"attempt": 3, "until_ms": NOW + 27_000, **given})
    open_turn = Execution(turn_id="t_1", submission_ids=("m:1",), started_at_ms=NOW, retry=retry)
    return Snapshot(
        "triage:77",
        head(status=Status.PARKED, turn="t_1"),
        Work((), (Wait("retry", "timer", NOW + 27_000, "", 0),)),
        "",
        0,
        encode_checkpoint(Checkpoint(session_id="triage:77", execution=open_turn)).encode(),
    )


def test_a_parked_session_says_why_its_model_failed() -> None:
    snapshot = parked_for_a_model(error="503: overloaded", kind="provider_server", model="main")
    said = explain(snapshot, (worker("a"),), (None, 0), NOW)
    assert (said.code, said.text) == (
        "parked_timer",
        "triage:77 is parked: the model failed (503: overloaded) and is asked again in 27 s",
    )


@pytest.mark.parametrize(
    ("kind", "error", "why"),
    [
        ("limit", "", "model main is at its limit, and is asked"),
        ("limit", "503: overloaded", "model main is at its limit, and is asked"),
        ("provider_rate_limit", "429", "the model failed (429) and is asked again"),
    ],
)
def test_a_session_that_waits_for_a_limit_names_the_model_and_the_time(
    kind: str, error: str, why: str
) -> None:
    snapshot = parked_for_a_model(attempt=0, error=error, kind=kind, model="main")
    said = explain(snapshot, (worker("a"),), (None, 0), NOW)
    assert (said.code, said.text) == ("rate_limited", f"triage:77 is parked: {why} in 27 s")
    assert (said.facts["model"], said.facts["until_ms"]) == ("main", NOW + 27_000)
    late = explain(snapshot, (), (None, 0), NOW + 30_000)
    assert late.code == "rate_limited" and "no worker serves its queue" in late.text


def test_a_quarantined_session_says_how_often_it_was_tried() -> None:
    said = told(worker("a"), status=Status.QUARANTINED, attempts=5)
    assert said.code == "quarantined"
    assert said.text == "triage:77 is quarantined: 5 grants in a row without progress"
    assert said.remedy == "changeover redrive triage:77"


def test_a_session_that_its_worker_quarantined_says_why() -> None:
    error = "handler 'bot' went another way than before"
    stopped = SessionQuarantined(attempts=1, cause="worker", error=error).body()
    snapshot = Snapshot(
        "triage:77",
        head(status=Status.QUARANTINED, stopped=stopped),
        Work((), ()),
        "",
        0,
        None,
    )
    said = explain(snapshot, (), (None, 0), NOW)
    assert (said.code, said.text) == ("quarantined", f"triage:77 is quarantined: {error}")
    assert said.facts["error"] == error


def test_facts_are_times_of_the_day_and_spans_and_repeat_nothing() -> None:
    found = Explanation(
        session_id="s",
        code="quarantined",
        text="s is quarantined: another way",
        facts={"until_ms": NOW, "due_ms": NOW, "lease_ms": 26_000, "updated_ms_ago": 41_000,
               "turn": None, "serving": [], "error": "another way"},
    )  # fmt: skip
    at = clock(NOW)
    assert facts_line(found) == f"until {at} · due {at} · lease 26 s · updated 41 s ago · turn -"


@pytest.mark.parametrize("status", [Status.CLOSED, Status.DELETED])
def test_an_ended_session_says_so(status: Status) -> None:
    assert told(worker("a"), status=status).code == status.value


@pytest.mark.parametrize("status", list(Status))
def test_every_status_has_an_explanation_even_without_any_worker(status: Status) -> None:
    assert told(status=status).text.startswith("triage:77 ")


def test_the_scripts_suspect_a_session_after_as_many_grants_as_people_are_told() -> None:
    assert re.findall(r"local SUSPECT = (\d+)", script("claim").text) == [str(SUSPECT_AFTER)]


# What its server has to do with it


def hindered_by(status: Status = Status.READY, **info: str) -> Explanation:
    snapshot = Snapshot("s:1", head(status=status), Work((), ()), "", 0, None)
    return explain(snapshot, [worker("a")], (0, 1), NOW, server=info)


def test_a_replica_is_the_reason_whatever_else_is_true() -> None:
    said = hindered_by(role="slave")
    assert (said.code, said.remedy is None) == ("redis_readonly", False)
    assert hindered_by(role="master").code == "waiting_for_slot"
    assert hindered_by(Status.QUARANTINED, role="slave").code == "quarantined"
    assert on_a_replica("s:1").code == "redis_readonly"


@pytest.mark.parametrize(
    ("used", "uncounted", "limit", "code"),
    [
        ("2048", "0", "1024", "redis_full"),
        ("1024", "0", "1024", "redis_full"),
        ("1024", "1", "1024", "waiting_for_slot"),
        ("1024", "0", "0", "waiting_for_slot"),
    ],
)
def test_a_full_server_is_the_reason(used: str, uncounted: str, limit: str, code: str) -> None:
    said = hindered_by(used_memory=used, mem_not_counted_for_evict=uncounted, maxmemory=limit)
    assert said.code == code

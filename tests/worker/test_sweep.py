"""The sweep: every scenario keeps every promise wherever its worker is stopped, and a store, a
worker or a scenario that breaks one is found out."""

from __future__ import annotations

import hashlib
import re
import sys
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import redis.asyncio

from changeover_shared._checkpoint import PendingCall
from changeover_shared._errors import ExtraMissing, Invalid
from changeover_shared._items import AssistantMessage, Item, ToolCall, ToolResult, UserMessage
from changeover_shared._ops import CloseOp, CompactOp, RollbackOp, SetModelOp
from changeover_shared._store import fleet
from changeover_shared._store.scripts import Script, script
from changeover_shared._words import Effect
from changeover_worker import Agent, App, Compaction, Turn, tool
from changeover_worker._session.agent_turn import AgentTurn
from changeover_worker._tools.context import StopSignal
from changeover_worker._turn.draft import Draft
from changeover_worker.testing import Report, ScriptedModel, User, call, say, sweep
from changeover_worker.testing._watched import misfits
from tests.support.scenarios import (
    SCENARIOS,
    brief,
    interrupt_that_nobody_has_heard_of,
    one_answer,
    reporter,
    speaker,
    three_steps,
    toolsmith,
    two_tools,
)
from tests.support.servers import SERVERS, running_server

SAID = UserMessage(text="go")
ASKED = AssistantMessage(
    tool_calls=(
        ToolCall(call_id="c1", name="pay", arguments="{}"),
        ToolCall(call_id="c2", name="look", arguments="{}"),
    )
)
PAID = ToolResult(call_id="c1", name="pay", output="paid")
SEEN = ToolResult(call_id="c2", name="look", output="seen")

LEASE_CHECK = "refused = lease_guard(s, lease) or unfit(s)\nif refused then return refused end"
LOSES_ANSWERS = (
    "if kind == 'end' then items[#items] = nil end\nfor _, item in ipairs(items) do\n  transcript_n"
)
REPEAT_CHECK = "if batch <= num(s, 'batch') then"


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_scenario_keeps_its_promises_wherever_its_worker_stops(name: str) -> None:
    scenario, app = SCENARIOS[name]
    report = await sweep(scenario, app)
    rings = sum(call.startswith("ring#") for call in report.calls)
    assert report.cases == 7 * len(report.calls) - 3 * rings
    assert {"peek#1", "claim#1", "renew#1", "commit#1"} <= set(report.calls)


async def test_a_scenario_keeps_its_promises_when_its_successor_stops_as_well() -> None:
    report = await sweep(two_tools, toolsmith, twice=True)
    assert report.cases > 2 * len(report.calls)


async def test_what_only_a_third_holder_does_wrong_is_found_out_and_replayed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted = "local seq = num(s, 'seq') + 1"
    without(monkeypatch, "commit", counted, f"{counted} + (num(s, 'fence') > 2 and 1 or 0)")
    assert (await sweep(one_answer, speaker, only="commit#1 after kill")).cases == 1
    with pytest.raises(
        AssertionError, match=r"after kill then .*: G4: the journal lacks"
    ) as failure:
        await sweep(one_answer, speaker, twice=True)
    only = str(failure.value).partition('only="')[2].removesuffix('")')
    with pytest.raises(AssertionError, match="G4: the journal lacks"):
        await sweep(one_answer, speaker, only=only)
    monkeypatch.undo()
    assert (await sweep(one_answer, speaker, only=only)).cases == 1


async def test_an_unknown_second_case_is_refused_with_the_calls_of_the_successor() -> None:
    with pytest.raises(Invalid, match=r"claim#1.*commit#1"):
        await sweep(one_answer, speaker, only="claim#1 after kill then commit#9 after kill")


async def test_a_completion_that_an_interrupt_forbids_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without(monkeypatch, "commit", "get(s, 'ctl_turn') == turn then", "false then")
    with pytest.raises(AssertionError, match="undisturbed: the scenario fails"):
        await sweep(interrupt_that_nobody_has_heard_of, brief)


async def test_a_transcript_that_has_not_what_was_told_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without(monkeypatch, "commit", "for _, item in ipairs(items) do\n  transcript_n", LOSES_ANSWERS)
    with pytest.raises(AssertionError, match="G3: 'all done' of bot was told 1 times and stands 0"):
        await sweep(two_tools, toolsmith)


async def test_a_tool_that_starts_before_its_call_is_committed_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = AgentTurn._answer

    async def too_early(self: Any, execution: Any, end: Any, response: Any) -> None:
        for asked in response.message.tool_calls:
            effect = self._calls.effect_of(asked.name)
            if effect is not Effect.ONCE:
                pending = PendingCall(
                    call_id=asked.call_id, name=asked.name, arguments=asked.arguments, effect=effect
                )
                await self._calls.run_tool(execution, pending, StopSignal())
        await answer(self, execution, end, response)

    monkeypatch.setattr(AgentTurn, "_answer", too_early)
    with pytest.raises(AssertionError, match="G6: call c2 started before it was committed"):
        await sweep(two_tools, toolsmith)


async def test_the_scenarios_pass_every_script_that_a_holder_calls() -> None:
    seen: Counter[str] = Counter()
    for scenario, app in SCENARIOS.values():
        report = await sweep(scenario, app, only="claim#1 before kill")
        seen.update(call.partition("#")[0] for call in report.calls)
    assert {"claim", "renew", "append", "commit", "give_up"} <= set(seen)


def without(monkeypatch: pytest.MonkeyPatch, name: str, guard: str, instead: str = "") -> None:
    """Have the store run a script that lacks one guard."""

    def weakened(asked: str) -> Script:
        found = script(asked)
        if found.name != name:
            return found
        assert guard in found.plain
        text = found.plain.replace(guard, instead)
        return replace(found, plain=text, plain_sha=sha1(text))

    monkeypatch.setattr(fleet, "script", weakened)


def sha1(text: str) -> str:
    """What a script of this text is called by."""
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


async def test_commits_without_the_lease_check_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without(monkeypatch, "commit", LEASE_CHECK)
    with pytest.raises(AssertionError) as failure:
        await sweep(one_answer, speaker)
    assert "\n" not in str(failure.value)
    assert 'replay with sweep(..., only="' in str(failure.value)
    assert "G2: the first worker's late call changed" in str(failure.value)


async def test_the_line_of_a_failure_replays_exactly_its_case(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without(monkeypatch, "commit", LEASE_CHECK)
    with pytest.raises(AssertionError) as failure:
        await sweep(one_answer, speaker)
    only = str(failure.value).partition('only="')[2].removesuffix('")')
    with pytest.raises(AssertionError, match="G2: the first worker's late call changed"):
        await sweep(one_answer, speaker, only=only)
    monkeypatch.undo()
    assert (await sweep(one_answer, speaker, only=only)).cases == 1


async def test_a_lease_that_comes_back_to_life_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without(monkeypatch, "renew", "elseif expires <= now then", "elseif false then")
    with pytest.raises(AssertionError, match="G2: the first worker's late call changed leases"):
        await sweep(one_answer, speaker, only="renew#1 before freeze")


async def test_a_record_that_names_other_items_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    placed = Draft.placed_after
    monkeypatch.setattr(Draft, "placed_after", lambda draft, n: placed(draft, n + 1))
    with pytest.raises(AssertionError, match=r"G3: the records name the items \[3\]"):
        await sweep(one_answer, speaker)


async def test_turns_that_end_where_they_begin_are_not_counted() -> None:
    scenario, app = SCENARIOS["a change of model"]
    assert (await sweep(scenario, app, only="commit#2 after kill")).cases == 1


async def test_a_claim_that_is_granted_twice_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "claim", "mine and 'AGAIN'", "mine and 'GRANTED'")
    with pytest.raises(AssertionError, match="G3: claim#1 answered"):
        await sweep(one_answer, speaker, only="claim#1 lost live")


async def test_appends_that_forget_their_number_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without(monkeypatch, "append", REPEAT_CHECK, "if false then")
    with pytest.raises(AssertionError, match="append#1 lost live"):
        await sweep(one_answer, speaker, only="append#1 lost live")


async def test_a_once_tool_that_is_run_again_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_unfinished(execution: Any, on_takeover: str) -> tuple[()]:
        return ()

    monkeypatch.setattr("changeover_worker._turn.recovery.unknown_calls", all_unfinished)
    with pytest.raises(AssertionError, match="G6: call c1 is `once` and started 2 times"):
        await sweep(two_tools, toolsmith)


async def test_a_once_step_that_is_run_again_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("changeover_worker._turn.handler.may_have_run", lambda execution: ())
    with pytest.raises(AssertionError, match="G6: step 'pay' is `once` and ran 2 times"):
        await sweep(three_steps, reporter, only="commit#4 after freeze")


async def ops_between_messages(user: User) -> None:
    """Turns that start and end at once, among some that do not."""
    assert await user.ended(await user.submit("x" * 4000)) == "completed"
    for op in (CompactOp(), SetModelOp(model="m"), RollbackOp(to="t_9")):
        assert await user.ended(await user.submit(op)) in ("completed", "failed")
    assert await user.ended(await user.submit("y" * 4000)) == "completed"
    assert await user.ended(await user.submit(CompactOp())) == "completed"
    assert await user.ended(await user.submit(CloseOp())) == "completed"


def small() -> App:
    agent = Agent("bot", model="m", compaction=Compaction(keep_tokens=10))
    return App(agents=[agent], models={"m": ScriptedModel.by(lambda _: say("short"))})


@pytest.mark.parametrize("case", ["commit#1 before kill", "commit#11 lost freeze"])
async def test_the_ops_of_a_session_break_no_promise(case: str) -> None:
    assert (await sweep(ops_between_messages, small, only=case)).cases == 1


async def test_a_thawed_worker_that_runs_a_call_of_a_turn_before_breaks_no_promise() -> None:
    async def two_turns(user: User) -> None:
        first, second = await user.submit("one"), await user.submit("two")
        assert await user.ended(first) == "completed"
        assert await user.ended(second) == "completed"

    def looker() -> App:
        @tool(effect="pure", terminal=True)
        async def look() -> str:
            """Look."""
            return "seen"

        agent = Agent("bot", model="m", tools=[look])
        return App(agents=[agent], models={"m": ScriptedModel.by(lambda _: call("look"))})

    assert (await sweep(two_turns, looker, only="commit#2 after freeze")).cases == 1


async def test_a_scenario_that_fails_is_told_with_its_case() -> None:
    runs: list[int] = []

    async def fails_later(user: User) -> None:
        runs.append(1)
        await user.ended(await user.submit("hello"))
        assert len(runs) < 2, "only the first run is fine"

    with pytest.raises(AssertionError, match="peek#1 before kill: the scenario fails: only the"):
        await sweep(fails_later, speaker)


async def test_a_scenario_without_a_store_call_is_refused() -> None:
    async def does_nothing(user: User) -> None:
        return

    with pytest.raises(AssertionError, match="made no store call"):
        await sweep(does_nothing, speaker)


async def test_an_unknown_case_is_refused_with_the_calls_that_there_are() -> None:
    with pytest.raises(Invalid, match="commit#2"):
        await sweep(one_answer, speaker, only="commit#9 lost kill")


async def test_a_call_that_does_not_come_again_fails_the_case() -> None:
    runs: list[int] = []

    async def talks_once(user: User) -> None:
        runs.append(1)
        await user.ended(await user.submit("hello"))
        if len(runs) == 1:
            await user.ended(await user.submit("more"))

    with pytest.raises(AssertionError, match="did not come in 3 runs"):
        await sweep(talks_once, speaker, only="commit#4 before kill")


async def test_a_session_that_never_ends_fails_within_its_time() -> None:
    async def waits_for_nothing(user: User) -> None:
        await user.submit("hello")
        await user.until(lambda event: event.type == "nothing")

    with pytest.raises(AssertionError, match=r"did not come to an end within 0\.2 s"):
        await sweep(waits_for_nothing, speaker, case_timeout="0.2s")


async def test_a_handler_that_does_not_repeat_is_found_out_with_the_call_that_differs() -> None:
    runs: list[int] = []

    def app() -> App:
        runs.clear()
        app = App(models={"main": ScriptedModel.always(say("hello"))})

        @app.handler("bot")
        async def bot(turn: Turn) -> str:
            runs.append(1)
            if len(runs) > 1:
                await turn.say("again")
            await turn.model("hello")
            return "done"

        return app

    async def asks(user: User) -> None:
        await user.ended(await user.submit("hello"))

    found = "session s is quarantined before m1 has ended: handler 'bot' went another way"
    with pytest.raises(AssertionError, match=found):
        await sweep(asks, app)


@pytest.mark.parametrize(
    ("items", "found"),
    [
        ((), "begins with nothing"),
        ((ASKED,), "begins with assistant"),
        ((SAID, ASKED, SEEN), r"the calls \['c1', 'c2'\] with the results \['c2'\]"),
        ((SAID, ASKED, SEEN, PAID), r"with the results \['c2', 'c1'\]"),
        ((SAID, ASKED, PAID, SAID, SEEN), "a result without its call: c2"),
        ((SAID, PAID), "a result without its call: c1"),
    ],
)
def test_an_invalid_conversation_is_found_out(items: tuple[Item, ...], found: str) -> None:
    assert any(re.search(found, line) for line in misfits(items))
    assert misfits((SAID, ASKED, PAID, SEEN)) == []


async def test_a_sweep_without_fakeredis_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fakeredis", None)
    with pytest.raises(ExtraMissing, match=r"changeover\[testing\]"):
        await sweep(one_answer, speaker)


@pytest.mark.parametrize("kind", SERVERS)
async def test_a_sweep_on_a_server_leaves_no_key_behind(kind: str) -> None:
    with running_server(kind) as url:
        report = await sweep(one_answer, speaker, url=url, only="commit#2 lost freeze")
        assert report.cases == 1
        async with redis.asyncio.Redis.from_url(url) as client:
            assert await client.dbsize() == 0


def test_a_report_says_how_much_was_run() -> None:
    report = Report(calls=("claim#1", "commit#1"), cases=14, seconds=1.25)
    assert str(report) == "2 store calls, 14 cases, 1.2 s"

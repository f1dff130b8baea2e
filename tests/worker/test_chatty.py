"""A producer that sends after every step keeps no turn going, and nobody else waiting."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from changeover import Busy
from changeover_worker import tool
from changeover_worker._session import signals
from changeover_worker._session.signals import Moment
from changeover_worker.testing import ScriptedModel, call, say
from tests.support.holding import bench
from tests.support.recovering import app_of


@pytest.fixture(autouse=True)
def _no_listener_stays() -> Iterator[None]:
    yield
    signals.listen(None)


@tool(effect="pure")
async def look() -> str:
    """Look."""
    return "seen"


async def test_a_turn_takes_in_so_many_steers_and_leaves_the_rest_and_room_for_others() -> None:
    """G9: two more steers at every boundary, for as long as the turn runs."""
    async with bench(max_inbox=8) as on:
        sent = 0

        async def chatter(moment: Moment, session_id: str, detail: str) -> None:
            nonlocal sent
            if moment is Moment.TOOL_DONE and not await on.turns():
                for _ in range(2):
                    sent += 1
                    await on.submit(f"and {sent}", f"s{sent}", policy="steer")

        await on.submit("go")
        signals.listen(chatter)
        # The model looks three times, and is done with what it has been told by then.
        model = ScriptedModel(call("look"), call("look"), call("look"), say("ok"), say("the rest"))
        await on.run(app_of(model, look))
        records = await on.turns()
        assert records[0].submission_ids == ("m1", "s1", "s2", "s3")
        assert records[1].submission_ids == ("s4", "s5", "s6")
        assert [record.ending.value for record in records] == ["completed", "completed"]
        assert sent == 6


async def test_an_endless_steerer_is_busy_and_its_turn_ends() -> None:
    async with bench(max_inbox=4) as on:
        sent, refused = 0, 0

        async def chatter(moment: Moment, session_id: str, detail: str) -> None:
            nonlocal sent, refused
            while moment is Moment.TOOL_DONE and not await on.turns():
                try:
                    await on.submit("more", f"s{sent + 1}", policy="steer")
                except Busy:
                    refused += 1
                    return
                sent += 1

        await on.submit("go")
        signals.listen(chatter)
        model = ScriptedModel(*[call("look")] * 5, say("ok"), say("the rest"))
        await on.run(app_of(model, look))
        assert [record.submission_ids for record in await on.turns()] == [
            ("m1", "s1"),
            ("s2", "s3"),
        ]
        assert (sent, refused) == (3, 5)


async def test_neighbours_that_join_make_turns_of_a_bounded_size() -> None:
    async with bench(max_inbox=8) as on:
        for n in range(8):
            await on.submit(f"message {n}", f"j{n}", policy="join")
        await on.run(app_of(ScriptedModel.always(say("ok"))))
        taken = [record.submission_ids for record in await on.turns()]
        assert taken == [("j0", "j1", "j2", "j3"), ("j4", "j5", "j6", "j7")]

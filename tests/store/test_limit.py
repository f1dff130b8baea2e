"""`limit`: a model is asked no more often than its provider allows, by whomever.

Redis's clock cannot be set: time passes here by moving what was written nearer.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from changeover_shared._store import requests
from changeover_shared._store.records import Bucket
from tests.support.driving import TTL_MS, Driver

MINUTE_MS = 60_000
HOUR_MS = 3_600_000
SIXTY = (Bucket("main", requests=60),)
"""Five at once, then one each 60 / 56 s: never more than 60 in a minute."""
STEP_MS = MINUTE_MS / 56
BLINK_MS = 5_000
"""More than the steps of any test take of the clock."""


def key(drive: Driver, part: str = "bucket", name: str = "main", tenant: str = "") -> str:
    return drive.fleet.keys.limits.model(name, tenant)[part]


async def pass_time(drive: Driver, ms: float, name: str = "main", tenant: str = "") -> None:
    """Let time pass for a bucket, for the places in its line and for what runs."""
    keys = drive.fleet.keys.limits.model(name, tenant)
    for field in ("requests", "tokens", "line", "slots", "closed"):
        value = await drive.redis("HGET", keys["bucket"], field)
        if value and float(value) > 0:
            await drive.redis("HSET", keys["bucket"], field, f"{float(value) - ms:.3f}")
    for part in ("running", "line", "kept"):
        for member in await drive.redis("ZRANGE", keys[part], 0, -1):
            await drive.redis("ZINCRBY", keys[part], -ms, member)


async def granted(drive: Driver, names: Sequence[str], **given: Any) -> list[str]:
    return [name for name in names if await drive.limit(name, **given) == 0]


async def over(
    drive: Driver, request: str, *, used: int = 100, took_ms: int = 10, **given: Any
) -> None:
    asked = drive.asked(request, **given)
    settled = requests.settle_limit(drive.fleet.keys, asked, tokens=used, took_ms=took_ms)
    assert (await drive.call(settled))[0] == "OK"


def names(count: int, prefix: str = "r") -> list[str]:
    return [f"{prefix}{i}" for i in range(count)]


# Requests a minute


@pytest.mark.parametrize("limit", [1, 2, 11, 12, 60, 1000])
async def test_no_minute_has_more_requests_than_it_may(drive: Driver, limit: int) -> None:
    """Whoever asks as soon as it may: what was let through in any minute, at whatever moment."""
    rates = (Bucket("main", requests=limit),)
    at = 0.0
    let_through: list[float] = []
    while len(let_through) < min(3 * limit, 40):
        request = f"r{len(let_through)}"
        wait_ms = await drive.limit(request, limit=rates)
        if wait_ms:
            await pass_time(drive, wait_ms)
            at += wait_ms
        else:
            let_through.append(at)
    # The clock runs on meanwhile: what came later than it was counted can only be fewer.
    for first, time in enumerate(let_through):
        within = [one for one in let_through[first:] if one < time + MINUTE_MS - BLINK_MS]
        assert len(within) <= limit
    assert max(let_through[:2]) < MINUTE_MS if limit > 1 else let_through[1] > MINUTE_MS - BLINK_MS


async def test_a_twelfth_goes_at_once_and_each_other_one_has_a_time_of_its_own(
    drive: Driver,
) -> None:
    waits = [await drive.limit(name, limit=SIXTY) for name in names(10)]
    assert waits[:5] == [0] * 5
    assert min(waits[5:]) > 0
    line = await drive.redis("ZRANGE", key(drive, "line"), 0, -1, "WITHSCORES")
    for one, other in pairwise(map(float, line[1::2])):
        assert other - one == pytest.approx(STEP_MS, abs=1.5)


async def test_a_place_is_kept_while_its_owner_comes_back(drive: Driver) -> None:
    await granted(drive, names(5), limit=SIXTY)
    wait_ms = await drive.limit("mine", limit=SIXTY)
    later_ms = await drive.limit("later", limit=SIXTY)
    assert 0 < wait_ms < later_ms
    again_ms = await drive.limit("mine", limit=SIXTY)
    assert wait_ms - BLINK_MS < again_ms <= wait_ms
    await pass_time(drive, wait_ms)
    assert await drive.limit("new", limit=SIXTY) > 0, "a newcomer is behind the line"
    assert await drive.limit("mine", limit=SIXTY) == 0


async def test_who_comes_too_early_keeps_its_place_though_others_came_late(drive: Driver) -> None:
    """A late one moves what is possible next behind the next one's time."""
    two = (Bucket("main", requests=2),)
    assert await drive.limit("r0", limit=two) == 0
    waits = [await drive.limit(name, limit=two) for name in ("late", "early", "last")]
    await pass_time(drive, waits[0] + 10_000)
    assert await drive.limit("late", limit=two) == 0
    early_ms = await drive.limit("early", limit=two)
    assert 30_000 - BLINK_MS < early_ms <= 30_000
    line = await drive.redis("ZRANGE", key(drive, "line"), 0, -1)
    assert line == ["place of early", "place of last"]


async def test_a_place_that_is_given_back_is_the_next_ones(drive: Driver) -> None:
    await granted(drive, names(5), limit=SIXTY)
    first_ms = await drive.limit("first", limit=SIXTY)
    last_ms = await drive.limit("last", limit=SIXTY)
    left = requests.leave_limit(drive.fleet.keys, drive.asked("last", limit=SIXTY))
    for _ in range(2):
        await drive.call(left)
    assert await drive.redis("ZRANGE", key(drive, "line"), 0, -1) == ["place of first"]
    assert await drive.redis("ZRANGE", key(drive, "kept"), 0, -1) == ["place of first"]
    next_ms = await drive.limit("next", limit=SIXTY)
    assert first_ms < next_ms <= last_ms


async def test_a_place_whose_owner_stays_away_ends_by_itself(drive: Driver) -> None:
    await granted(drive, names(5), limit=SIXTY)
    wait_ms = await drive.limit("gone", limit=SIXTY)
    await pass_time(drive, wait_ms + 30_001)
    assert await drive.limit("next", limit=SIXTY) == 0
    assert await drive.redis("ZRANGE", key(drive, "line"), 0, -1) == []
    assert await drive.redis("ZRANGE", key(drive, "kept"), 0, -1) == []


async def test_a_newcomer_passes_where_those_who_were_given_times_stay_away(
    drive: Driver,
) -> None:
    """A line whose sessions were deleted must not keep a model idle until its end."""
    await granted(drive, names(5), limit=SIXTY)
    waits = [await drive.limit(name, limit=SIXTY) for name in names(90, "gone")]
    # The first ten have lost their places; those whose times have come are not there either.
    await pass_time(drive, waits[9] + 30_001)
    for gone in names(45, "gone")[10:]:
        await drive.call(requests.leave_limit(drive.fleet.keys, drive.asked(gone, limit=SIXTY)))
    assert await drive.limit("new", limit=SIXTY) == 0
    # The next one is not let through at once as well: the line goes before it as before.
    await pass_time(drive, 60_000)
    assert await drive.limit("newer", limit=SIXTY) > 0


async def test_nobody_is_given_a_place_further_ahead_than_it_waits(drive: Driver) -> None:
    one = (Bucket("main", requests=1),)
    assert await drive.limit("r0", limit=one) == 0
    assert await drive.limit("r1", limit=one, longest_ms=MINUTE_MS) > 0
    async with drive.unchanged():
        assert await drive.limit("r2", limit=one, longest_ms=MINUTE_MS) == -1


# Tokens a minute


async def test_tokens_are_estimated_before_and_corrected_after(drive: Driver) -> None:
    rate = (Bucket("main", tokens=6000),)
    assert await drive.limit("r0", tokens=1000, limit=rate) == 0
    wait_ms = await drive.limit("r1", tokens=1000, limit=rate)
    assert 5_000 - BLINK_MS < wait_ms <= 5_000, "ten seconds' worth, five are given in advance"
    await over(drive, "r0", used=4000, tokens=1000, limit=rate)
    await pass_time(drive, wait_ms)
    wait_ms = await drive.limit("r1", tokens=1000, limit=rate)
    assert 30_000 - BLINK_MS < wait_ms <= 30_000, "it came to thirty seconds' worth more"
    await pass_time(drive, wait_ms)
    assert await drive.limit("r1", tokens=1000, limit=rate) == 0
    await over(drive, "r1", used=0, tokens=1000, limit=rate)
    assert await drive.limit("r2", tokens=1000, limit=rate) == 0, "nothing was used"


async def test_a_request_larger_than_a_minute_is_let_through_alone(drive: Driver) -> None:
    rate = (Bucket("main", tokens=6000),)
    assert await drive.limit("huge", tokens=12_000, limit=rate) == 0
    wait_ms = await drive.limit("next", tokens=1, limit=rate)
    assert 115_000 - BLINK_MS < wait_ms <= 115_000


async def test_no_count_of_tokens_closes_a_model_for_longer_than_anybody_waits(
    drive: Driver,
) -> None:
    """What a provider counts is its word alone, and may be wrong."""
    rate = (Bucket("main", tokens=1),)
    assert await drive.limit("r0", tokens=10, limit=rate) == 0
    await over(drive, "r0", used=2**53 - 1, tokens=10, limit=rate)
    assert await drive.limit("r1", tokens=1, limit=rate) > HOUR_MS - 2 * MINUTE_MS
    await pass_time(drive, HOUR_MS)
    assert await drive.limit("r1", tokens=1, limit=rate) == 0


async def test_a_clock_that_is_put_back_closes_a_model_for_no_longer_than_a_minute(
    drive: Driver,
) -> None:
    """Redis's clock after a restart or a failover: what was written then lies far ahead."""
    assert await granted(drive, names(5), limit=SIXTY) == names(5)
    await pass_time(drive, -5 * HOUR_MS)
    assert 0 < await drive.limit("next", limit=SIXTY) < MINUTE_MS


# How many at once

TWO = (Bucket("main", concurrency=2),)


async def test_so_many_run_at_once_and_the_first_that_waits_is_the_next(drive: Driver) -> None:
    assert await granted(drive, ["a", "b", "c", "d"], limit=TWO) == ["a", "b"]
    await pass_time(drive, 10_000)
    assert await drive.limit("d", limit=TWO) > 0
    await over(drive, "a", limit=TWO)
    assert await drive.limit("d", limit=TWO) > 0, "c came first"
    assert await drive.limit("e", limit=TWO) > 0, "and so did d"
    assert await drive.limit("c", limit=TWO) == 0
    await over(drive, "b", limit=TWO)
    assert await drive.limit("e", limit=TWO) > 0
    assert await drive.limit("d", limit=TWO) == 0


async def test_a_free_place_is_taken_by_who_comes_while_the_others_are_not_due(
    drive: Driver,
) -> None:
    assert await granted(drive, ["a", "b", "c"], limit=TWO) == ["a", "b"]
    await over(drive, "a", limit=TWO)
    assert await drive.limit("new", limit=TWO) == 0


async def test_who_waits_is_told_by_how_long_requests_take(drive: Driver) -> None:
    for name in names(60):
        assert await drive.limit(name, limit=TWO) == 0
        await over(drive, name, limit=TWO, took_ms=20_000)
    await granted(drive, ["a", "b"], limit=TWO)
    waits = [await drive.limit(name, limit=TWO) for name in ("c", "d", "e")]
    for turn, wait_ms in enumerate(waits, 1):
        assert 10_000 * turn - BLINK_MS < wait_ms <= 10_000 * turn + 500


async def test_times_that_were_given_to_nobody_who_is_left_are_free_again(drive: Driver) -> None:
    assert await granted(drive, ["a", "b", *names(9)], limit=TWO) == ["a", "b"]
    for name in names(9):
        asked = drive.asked(name, limit=TWO)
        await drive.call(requests.leave_limit(drive.fleet.keys, asked))
    assert 0 < await drive.limit("next", limit=TWO) <= 1_000, "the first turn, not the tenth"


async def test_what_a_crash_leaves_ends_by_itself_and_what_runs_is_extended(drive: Driver) -> None:
    assert await granted(drive, ["dead", "alive"], limit=TWO) == ["dead", "alive"]
    await pass_time(drive, TTL_MS - BLINK_MS)
    extend = requests.extend_limit(drive.fleet.keys, TWO, ["alive", "unheard"], span_ms=TTL_MS)
    await drive.call(extend)
    assert await drive.limit("next", limit=TWO) > 0
    await pass_time(drive, 2 * BLINK_MS)
    assert await drive.limit("next", limit=TWO) == 0
    assert await drive.redis("ZRANGE", key(drive, "running"), 0, -1) == ["alive", "next"]


# Whoever is told to wait by a provider


async def test_a_hold_closes_the_model_and_opens_it_to_one_after_the_other(drive: Driver) -> None:
    for limit, gap_ms in ((SIXTY, STEP_MS), ((Bucket("other"),), 50)):
        assert await drive.limit("before", limit=limit) == 0
        hold = requests.hold_limit(drive.fleet.keys, limit[0], "h", span_ms=30_000)
        await drive.call(hold)
        waits = [await drive.limit(name, limit=limit) for name in names(4)]
        assert 30_000 - BLINK_MS < waits[0] <= 30_000
        line = await drive.redis("ZRANGE", key(drive, "line", limit[0].name), 0, -1, "WITHSCORES")
        for one, other in pairwise(map(float, line[1::2])):
            assert other - one == pytest.approx(gap_ms, abs=1.5)
        await pass_time(drive, waits[-1], limit[0].name)
        assert await granted(drive, names(4), limit=limit) == names(4)


async def test_a_place_before_the_hold_is_behind_it(drive: Driver) -> None:
    await granted(drive, names(5), limit=SIXTY)
    mine_ms = await drive.limit("mine", limit=SIXTY)
    await drive.call(requests.hold_limit(drive.fleet.keys, SIXTY[0], "h", span_ms=30_000))
    await pass_time(drive, mine_ms)
    assert await drive.limit("mine", limit=SIXTY) > 30_000 - mine_ms - BLINK_MS


async def test_a_shorter_hold_does_not_end_a_longer_one(drive: Driver) -> None:
    for name, span_ms in (("a", 60_000), ("b", 1)):
        await drive.call(requests.hold_limit(drive.fleet.keys, SIXTY[0], name, span_ms=span_ms))
    assert await drive.limit("r0", limit=SIXTY) > 60_000 - BLINK_MS


# Tenants


async def test_a_tenant_at_its_limit_keeps_nobody_else_waiting(drive: Driver) -> None:
    def both(tenant: str) -> tuple[Bucket, ...]:
        return (Bucket("main", tenant, requests=1), Bucket("main", requests=60))

    assert await granted(drive, names(10, "acme"), limit=both("acme")) == ["acme0"]
    assert await drive.limit("other0", limit=both("other")) == 0
    assert await drive.limit("none0", limit=SIXTY) == 0
    assert await drive.redis("ZCARD", key(drive, "line")) == 0
    assert await drive.redis("ZCARD", key(drive, "line", tenant="acme")) == 9


async def test_who_had_its_turn_with_its_tenant_keeps_it_while_the_model_is_full(
    drive: Driver,
) -> None:
    both = (Bucket("main", "acme", requests=60), Bucket("main", concurrency=1))
    await granted(drive, names(5), limit=(both[0],))
    assert await drive.limit("other", limit=(both[1],)) == 0
    wait_ms = await drive.limit("mine", limit=both)
    await pass_time(drive, wait_ms, tenant="acme")
    assert await drive.limit("mine", limit=both) > 0
    kept = float(await drive.redis("ZSCORE", key(drive, "kept", tenant="acme"), "place of mine"))
    assert kept == float(await drive.redis("ZSCORE", key(drive, "kept"), "place of mine"))


# Repeats and ends


async def test_a_repeat_takes_nothing_twice(drive: Driver) -> None:
    two_at_once = (Bucket("main", requests=24, tokens=60_000),)
    for _ in range(3):
        assert await drive.limit("r0", limit=two_at_once) == 0
    assert await drive.limit("r1", limit=two_at_once) == 0, "two at once"
    first_ms = await drive.limit("r2", limit=two_at_once)
    for _ in range(3):
        assert 0 < await drive.limit("r2", limit=two_at_once) <= first_ms
    asked = drive.asked("r0", limit=two_at_once)
    before = float(await drive.redis("HGET", key(drive), "tokens"))
    for _ in range(3):
        await drive.call(requests.settle_limit(drive.fleet.keys, asked, tokens=1100, took_ms=1))
    assert float(await drive.redis("HGET", key(drive), "tokens")) == pytest.approx(
        before + 1000, abs=1
    )


async def test_what_was_not_sent_is_given_back_once(drive: Driver) -> None:
    limit = (Bucket("main", requests=1, tokens=100, concurrency=1),)
    assert await drive.limit("r0", limit=limit) == 0
    refund = requests.refund_limit(drive.fleet.keys, drive.asked("r0", limit=limit))
    for _ in range(2):
        await drive.call(refund)
    assert await drive.limit("r1", limit=limit) == 0
    assert await drive.limit("r2", limit=limit) > 0


async def test_every_key_ends(drive: Driver) -> None:
    limit = (Bucket("main", requests=1, concurrency=1),)
    await granted(drive, names(3), limit=limit)
    for part in ("bucket", "running", "line", "kept"):
        assert 600_000 - BLINK_MS < int(await drive.redis("PTTL", key(drive, part))) < HOUR_MS


async def test_models_of_one_name_share_what_it_allows_and_others_do_not(drive: Driver) -> None:
    assert await drive.limit("a0", limit=(Bucket("account", requests=1),)) == 0
    assert await drive.limit("b0", limit=(Bucket("account", requests=1),)) > 0
    assert await drive.limit("c0", limit=(Bucket("main", requests=1),)) == 0

from __future__ import annotations

import pytest

from changeover_worker._process.liveness import LIVE, Facts, judge

LIMIT_S = 5.0
HOUR_S = 3600.0


@pytest.mark.parametrize(
    ("loop_s", "claims_s", "answers_s"),
    [
        pytest.param(0, 0, HOUR_S, id="all is well"),
        pytest.param(LIMIT_S, 0, HOUR_S, id="the loop lags as much as it may"),
        pytest.param(0, 60, HOUR_S, id="the claim loop is as late as it may be"),
        pytest.param(0, HOUR_S, None, id="Redis is away"),
        pytest.param(0, HOUR_S, 0, id="Redis has just come back"),
        pytest.param(0, HOUR_S, 60, id="Redis has been back for as long as a round may take"),
        pytest.param(0, 0, None, id="Redis is away and the claim loop has nothing to do"),
    ],
)
def test_a_worker_is_live(loop_s: float, claims_s: float, answers_s: float | None) -> None:
    assert judge(Facts(loop_s, claims_s, answers_s), lag_limit_s=LIMIT_S) == LIVE


@pytest.mark.parametrize(
    ("loop_s", "claims_s", "answers_s", "reason"),
    [
        pytest.param(5.1, 0, HOUR_S, "event loop has been blocked for 5 s", id="blocked"),
        pytest.param(9, HOUR_S, None, "event loop has been blocked", id="blocked, Redis away"),
        pytest.param(9, 90, HOUR_S, "event loop has been blocked", id="both"),
        pytest.param(0, 60.1, 61, "claim loop has finished no round for 60 s", id="no claims"),
        pytest.param(0, HOUR_S, 60.1, "finished no round", id="not since it is back"),
    ],
)
def test_a_worker_is_not_live(
    loop_s: float, claims_s: float, answers_s: float | None, reason: str
) -> None:
    verdict = judge(Facts(loop_s, claims_s, answers_s), lag_limit_s=LIMIT_S)
    assert not verdict.live
    assert reason in verdict.reason

"""The gain and the SLO attainment of simulated requests."""

import pytest

from bench.gain.world import Score, Slo
from router.core.errors import Reason
from router.lab.simulator.outcome import Outcome
from router.lab.simulator.traffic import Arrival

SLOS = {"high": Slo(1.0, 0.1, 8.0), "low": Slo(10.0, 0.2, 2.0)}


def ended(name: str, first_s: float, last_s: float, reason: Reason = Reason.OK) -> Outcome:
    """A request of eleven tokens that arrived at 5 s."""
    outcome = Outcome(Arrival(0, 5.0, 100, 11, priority=name), "r0", 0, 5.0)
    outcome.first, outcome.ended, outcome.reason = 5.0 + first_s, 5.0 + last_s, reason
    return outcome


def test_tokens_count_with_the_worth_of_their_class() -> None:
    score = Score(SLOS)
    score.count(ended("high", 0.5, 1.0))
    assert score.ratio == 1.0
    score.count(ended("low", 50.0, 60.0))
    assert score.ratio == pytest.approx(8.0 / 10.0)
    assert score.by_class["high"].attainment == 1.0
    assert score.by_class["low"].attainment == 0.0


def test_a_stream_that_is_too_slow_is_not_within_its_slo() -> None:
    score = Score(SLOS)
    score.count(ended("high", 0.5, 2.5))  # 0.2 s per token
    assert score.by_class["high"].in_ttft == 1
    assert score.by_class["high"].attainment == 0.0
    assert 0.0 < score.ratio < 1.0


def test_a_failed_request_has_nothing_in_time() -> None:
    score = Score(SLOS)
    score.count(ended("high", 0.5, 1.0, Reason.QUEUE_FULL))
    assert score.ratio == 0.0

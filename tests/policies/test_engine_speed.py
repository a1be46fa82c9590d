"""The coefficients of one engine as a policy reads them: what is assumed, and the formulas."""

import pytest

from policies.engine_speed import EngineSpeed
from policies.facts import Candidate
from router.lab.emulator.core.timing import PROFILES


def speed(**coefficients: float) -> EngineSpeed:
    """A speed whose other coefficients are 0."""
    found = EngineSpeed()
    for name in ("base_s", "token_s", "attention_s", "running_s"):
        setattr(found, name, coefficients.get(name, 0.0))
    for name in ("step_s", "sequence_s", "context_s"):
        setattr(found, name, coefficients.get(name, 0.0))
    return found


def test_every_candidate_has_a_speed_of_its_own() -> None:
    one, other = Candidate("a"), Candidate("b")
    assert not one.speed.is_known
    one.speed.token_s = 0.0
    assert other.speed.token_s > 0.0


@pytest.mark.parametrize(("tokens", "cached"), [(100, 0), (2000, 0), (8000, 0), (1000, 4000)])
def test_the_assumed_engine_is_the_slowest_known_one(tokens: int, cached: int) -> None:
    slowest = PROFILES["bloom-176b-a100x8"]
    predicted = EngineSpeed().ttft_s(0, tokens, cached, 0)
    alone = slowest.prefill_alone_s(tokens + cached, cached) + slowest.step_s(0, 0, 1, 0)
    assert predicted == pytest.approx(alone, rel=0.02)


def test_the_assumed_decode_step_is_that_of_the_slowest_engine() -> None:
    step = PROFILES["bloom-176b-a100x8"].step_s(0, 0, 20, 30_000)
    assert EngineSpeed().tpot_s(20, 30_000) == pytest.approx(step, rel=0.01)


@pytest.mark.parametrize(
    ("coefficients", "facts", "expected"),
    [
        ({"base_s": 0.5}, (100, 100, 100, 10), 0.5),
        ({"token_s": 0.001}, (100, 200, 400, 10), 0.3),  # cached tokens are not computed
        ({"attention_s": 1e-6}, (100, 200, 400, 10), 0.1),  # 200 tokens after 500 in the mean
        ({"running_s": 0.01}, (100, 200, 400, 10), 0.1),
    ],
)
def test_each_term_of_the_first_token(
    coefficients: dict[str, float], facts: tuple[float, float, float, float], expected: float
) -> None:
    assert speed(**coefficients).ttft_s(*facts) == pytest.approx(expected)


def test_the_distance_delays_the_first_token_and_is_no_work_of_the_engine() -> None:
    found = speed(base_s=0.5, step_s=0.02)
    found.rtt_s = 0.08
    assert found.ttft_s(0, 100, 0, 0) == pytest.approx(0.58)
    assert found.prefill_s(0, 100, 0, 0) == pytest.approx(0.5)
    assert found.tpot_s(1, 0) == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("pending", "now", "left"),
    [(1000, 100.0, 1000), (1000, 100.4, 600), (1000, 105.0, 0), (0, 105.0, 0), (1000, 99.0, 1000)],
)
def test_the_engine_works_on_what_waits(pending: int, now: float, left: float) -> None:
    found = speed(token_s=0.001)
    found.serves_since = 100.0
    assert found.tokens_left(pending, now) == pytest.approx(left)

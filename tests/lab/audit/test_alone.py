"""The prefill time of a prompt alone, learned from requests that did and did not wait."""

from random import Random

import pytest

from router.lab.audit.survey import Alone, Curve


def true_s(tokens: int) -> float:
    return 0.035 + 1e-4 * tokens + 9e-9 * tokens**2


def test_the_curve_is_interpolated_and_extrapolated() -> None:
    curve = Curve([(100.0, 1.0), (200.0, 2.0), (400.0, 6.0)])
    told = [curve.seconds(tokens) for tokens in (10, 100, 150, 300, 400, 500)]
    assert told == pytest.approx([1.0, 1.0, 1.5, 4.0, 6.0, 8.0])
    assert Curve([]).seconds(5) == 0.0
    assert Curve([(100.0, 1.0)]).seconds(5000) == 1.0


def test_requests_at_idle_replicas_give_the_prefill_time() -> None:
    alone, rng = Alone(), Random(1)
    for _ in range(4000):
        tokens = rng.randint(50, 16_000)
        idle = rng.random() < 0.2
        alone.add("m", tokens, true_s(tokens) + (0.0 if idle else rng.expovariate(0.5)), idle=idle)
    for tokens in (100, 1000, 5000, 12_000):
        assert alone.seconds("m", tokens) == pytest.approx(true_s(tokens), rel=0.1)
    assert alone.known > 0.95


def test_without_idle_replicas_undelayed_requests_give_the_prefill_time() -> None:
    alone, rng = Alone(), Random(1)
    for _ in range(2000):
        tokens = rng.randint(500, 8000)
        alone.add("m", tokens, true_s(tokens) + 5.0 + rng.random(), idle=False)
        alone.add_straight("m", tokens, true_s(tokens) * rng.uniform(0.9, 1.1))
    for tokens in (1000, 5000):
        assert alone.seconds("m", tokens) == pytest.approx(true_s(tokens), rel=0.15)


def test_without_either_the_fastest_requests_are_used_and_marked_unknown() -> None:
    alone, rng = Alone(), Random(1)
    for _ in range(1000):
        alone.add("m", 1000, 1.0 + rng.random(), idle=False)
    assert alone.seconds("m", 1000) == pytest.approx(1.05, abs=0.03)
    assert alone.known == 0.0


def test_a_shorter_prompt_is_never_slower() -> None:
    alone = Alone()
    for _ in range(10):
        alone.add("m", 300, 9.0, idle=False)  # requests of this length always waited
        alone.add("m", 3000, 0.5, idle=True)
    assert alone.seconds("m", 300) <= 0.51


def test_each_model_has_its_own_curve_and_a_rare_one_the_common_curve() -> None:
    alone = Alone()
    for _ in range(200):
        alone.add("small", 1000, 0.1, idle=True)
        alone.add("large", 1000, 1.0, idle=True)
    alone.add("rare", 1000, 5.0, idle=True)
    assert alone.seconds("small", 1000) == pytest.approx(0.1, rel=0.02)
    assert alone.seconds("large", 1000) == pytest.approx(1.0, rel=0.02)
    assert alone.seconds("rare", 1000) == alone.seconds("unheard of", 1000) <= 1.02


def test_without_samples_nothing_is_predicted() -> None:
    alone = Alone()
    assert (alone.seconds("m", 10), alone.known) == (0.0, 0.0)


def test_the_number_of_models_is_bounded() -> None:
    alone = Alone()
    for number in range(1000):
        alone.add(f"m{number}", 10, 0.1, idle=True)
    assert len(alone._bins) < 50

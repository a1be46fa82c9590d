"""A replica's factor: a slow type is known after a few answers; a short slowdown is ignored."""

from random import Random

import pytest

from router.dispatch.hedging.speed import DOUBLING_S, FIRST, MOST, Speed

LINE_S = 0.2


def answers(speed: Speed, count: int, times: float, now: float, every_s: float = 0.1) -> float:
    for _ in range(count):
        now += every_s
        speed.shown(times * LINE_S, LINE_S, now)
    return now


def known(times: float, now: float = 100.0) -> Speed:
    speed = Speed()
    answers(speed, FIRST, times, now)
    return speed


@pytest.mark.parametrize("kind", [0.5, 1.0, 3.0])
def test_a_kind_is_known_by_its_first_answers(kind: float) -> None:
    speed, factors = Speed(), []
    for _ in range(FIRST):
        factors.append(speed.factor)
        answers(speed, 1, kind, 100.0)
    assert factors == sorted(factors, reverse=kind < 1.0)
    assert factors[0] == 1.0
    assert speed.factor == pytest.approx(kind)


@pytest.mark.parametrize("place", range(FIRST))
def test_a_straggler_among_the_first_makes_no_kind(place: int) -> None:
    speed = Speed()
    for number in range(FIRST):
        answers(speed, 1, 10.0 if number == place else 1.0, 100.0)
        assert number == 0 or speed.factor < 1.01
    assert speed.factor == pytest.approx(1.0)


@pytest.mark.parametrize("per_s", [0.2, 2.0, 50.0])
def test_one_that_becomes_slow_is_late_for_minutes(per_s: float) -> None:
    """For any rate of requests: the factor of a busy replica does not adapt sooner."""
    speed = known(1.0)
    now = answers(speed, int(DOUBLING_S * per_s), 10.0, 100.0, 1.0 / per_s)
    assert 1.9 < speed.factor < 2.1
    answers(speed, int(4 * DOUBLING_S * per_s), 10.0, now, 1.0 / per_s)
    assert speed.factor > 6.0  # a permanent slowdown is adopted


def test_one_answer_in_an_hour_moves_next_to_nothing() -> None:
    speed = known(1.0)
    speed.shown(10.0 * LINE_S, LINE_S, 4000.0)
    assert speed.factor < 1.03


def test_a_replica_with_a_slow_first_answer_is_judged_by_later_ones() -> None:
    speed = known(6.0)
    now = answers(speed, FIRST - 1, 1.0, 200.0)
    answers(speed, 1, 6.0, now)
    assert speed.factor > 5.0  # the fast answers were not consecutive
    answers(speed, FIRST, 1.0, 300.0)
    assert speed.factor == pytest.approx(1.0)


@pytest.mark.parametrize("kind", [1.0, 3.0])
def test_stragglers_do_not_change_the_factor(kind: float) -> None:
    rng, speed, now = Random(1), known(kind), 100.0
    for _ in range(20_000):
        took = kind * rng.lognormvariate(0.0, 0.3) * (10.0 if rng.random() < 0.05 else 1.0)
        now = answers(speed, 1, took, now)
    assert speed.factor == pytest.approx(kind, rel=0.1)


def test_what_was_cut_counts_only_above_the_factor() -> None:
    """At first, copies win against all attempts at a slow type, so cancelled attempts count too."""
    speed = Speed()
    for _ in range(FIRST):
        speed.cut(0.5 * LINE_S, LINE_S, 100.0)
    assert speed.factor == 1.0
    for _ in range(FIRST):
        speed.cut(3.0 * LINE_S, LINE_S, 100.0)
    assert speed.factor == pytest.approx(3.0)


@pytest.mark.parametrize("took_s", [0.0, 1e-300, 1e300])
def test_the_factor_is_bounded_for_any_input(took_s: float) -> None:
    speed = Speed()
    for number in range(1000):
        speed.shown(took_s, LINE_S, float(number))
        assert speed.factor * 1.000001 >= 1.0 / MOST
        assert speed.factor <= MOST * 1.000001
        assert len(speed._ratios) < FIRST

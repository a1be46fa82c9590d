"""Intervals of paired figures, and the judgement of a goal by one."""

from math import inf
from random import Random

import pytest

from bench.findings.intervals import MET, MISSED, OPEN, Interval, judged, noise, ratio
from bench.findings.judged import Judged, judged_distance, judged_interval, judged_ratio
from bench.overhead.goals import missed


def test_what_a_seed_does_to_both_cancels() -> None:
    """Seeds change the figures by a factor of ten; ours is always a tenth less."""
    theirs = [1.0, 2.0, 5.0, 10.0, 3.0]
    found = ratio([0.9 * one for one in theirs], theirs)
    assert found.value == pytest.approx(0.9)
    assert found.low == pytest.approx(0.9)
    assert found.high == pytest.approx(0.9)


def test_the_interval_covers_the_true_ratio_about_as_often_as_it_says() -> None:
    rng = Random(1)
    covered = 0
    runs = 200
    for _ in range(runs):
        pairs = [(rng.lognormvariate(0.0, 0.2), rng.lognormvariate(0.0, 0.2)) for _ in range(20)]
        found = ratio([one for one, _ in pairs], [other for _, other in pairs])
        covered += found.low <= 1.0 <= found.high
    assert 0.88 * runs <= covered <= 0.99 * runs


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (Interval(0.8, 0.9, 1.0, 5), MET),
        (Interval(0.8, 0.9, 1.06, 5), OPEN),  # the limit is inside the interval
        (Interval(1.06, 1.1, 1.2, 5), OPEN),  # above the limit by less than the noise
        (Interval(1.11, 1.2, 1.3, 5), MISSED),
        (Interval(1.11, 1.2, 1.3, 4), OPEN),  # too few pairs
        (Interval(0.1, 0.2, 0.3, 4), OPEN),
    ],
)
def test_a_goal_is_judged_by_the_whole_interval(found: Interval, words: str) -> None:
    assert judged(found, 1.05, noise=0.05) == words


def test_noise_is_the_largest_distance_of_a_contestant_from_itself() -> None:
    assert noise([1.0] * 5, [1.0] * 5) == 0.0
    first, second = [1.0, 1.2, 0.9, 1.1, 1.0], [1.1, 0.9, 1.0, 1.0, 1.3]
    found = ratio(first, second)
    assert noise(first, second) == max(found.high - 1.0, 1.0 - found.low) > 0.0


@pytest.mark.parametrize(
    ("ours", "theirs"), [([], []), ([1.0], [1.0, 2.0]), ([0.0], [1.0]), ([1.0], [-1.0])]
)
def test_figures_without_a_ratio_are_refused(ours: list[float], theirs: list[float]) -> None:
    with pytest.raises(ValueError, match=r"pairs|above 0"):
        ratio(ours, theirs)


THEIRS = [10.0, 20.0, 30.0, 15.0, 25.0, 12.0]


def against(factors: list[float], limit: float = 0.4, noise: float = 0.0) -> Judged:
    ours = [factor * one for factor, one in zip(factors, THEIRS, strict=True)]
    return judged_ratio("p99", "−60% or better", ours, THEIRS, limit, noise)


def test_a_goal_is_missed_if_the_whole_interval_exceeds_it_by_more_than_the_noise() -> None:
    factors = [0.5, 0.51, 0.49, 0.5, 0.51, 0.49]
    short = against(factors, noise=0.05)
    assert (short.met, short.missed) == (False, True)
    assert short.words().startswith("missed by 2")
    noisy = against(factors, noise=0.2)
    assert (noisy.met, noisy.missed) == (False, False)
    assert noisy.words() == "open: above the limit by less than the noise of 20.0%"


def test_only_missed_goals_fail_a_bench() -> None:
    met, short = against([0.3] * 6), against([0.5] * 6)
    undecided = against([0.5] * 6, noise=0.5)
    assert not missed([met, undecided], is_quick=False)
    assert missed([met, undecided, short], is_quick=False)
    assert not missed([short], is_quick=True)


def test_a_run_without_an_answer_misses_the_goal() -> None:
    verdict = judged_ratio("p99", "", [0.1] * 5 + [inf], [1.0] * 6, 1.0)
    assert (verdict.missed, verdict.here) == (True, "never")
    assert verdict.words() == "missed by any amount"


@pytest.mark.parametrize(
    ("ours", "theirs"), [([], []), ([1.0] * 5, [inf] * 5), ([1.0] * 5, [0.0] * 5), ([0.0], [1.0])]
)
def test_what_cannot_be_compared_is_not_measured(ours: list[float], theirs: list[float]) -> None:
    verdict = judged_ratio("p99", "", ours, theirs, 1.0)
    assert (verdict.met, verdict.missed, verdict.here) == (False, False, "-")
    assert verdict.words() == "not measured: nothing to compare"


@pytest.mark.parametrize(
    ("low", "high", "noise", "state", "words"),
    [
        (0.9, 1.04, 0.02, MET, "met (noise 2.0%)"),
        (0.9, 1.04, None, MET, "met (noise not measured)"),
        (1.08, 1.2, 0.02, MISSED, "missed by 4.8 % (noise 2.0%)"),
        (
            *(1.08, 1.2, 0.05, OPEN),
            "open: above the limit by less than the noise of 5.0% (noise 5.0%)",
        ),
        (
            *(1.08, 1.2, None, OPEN),
            "open: above the limit, but the noise was not measured (noise not measured)",
        ),
        (1.04, 1.2, 0.0, OPEN, "open: the limit is inside the interval (noise 0.0%)"),
    ],
)
def test_an_interval_is_judged_beside_its_noise(
    low: float, high: float, noise: float | None, state: str, words: str
) -> None:
    value = 1.0 if state == MET else 1.1
    found = judged_interval("a", "≤ 1.05", 1.05, Interval(low, value, high, 5), noise)
    assert (found.state, found.words()) == (state, words)
    assert found.here == f"{value:.2f} ({low:.2f} to {high:.2f})"
    assert (found.met, found.missed) == (state == MET, state == MISSED)
    assert missed([found], is_quick=False) == (state == MISSED)


@pytest.mark.parametrize(
    ("values", "state"),
    [
        ([0.9, 0.91, 0.89, 0.9, 0.9], MET),
        ([0.94, 0.95, 0.94, 0.95, 0.94], MISSED),  # too high
        ([0.8, 0.82, 0.8, 0.82, 0.8], MISSED),  # too low
        ([0.86, 0.91, 0.92, 0.91, 0.92], MET),  # one run alone is too low
        ([0.7, 1.0, 0.9, 0.95, 0.9], OPEN),
        ([0.9] * 4, OPEN),
    ],
)
def test_the_mean_is_judged_by_its_distance_on_either_side(values: list[float], state: str) -> None:
    verdict = judged_distance("coverage", "", values, 0.9, 0.03, "{:.1%}")
    assert verdict.state == state
    assert verdict.value == pytest.approx(abs(sum(values) / len(values) - 0.9))
    assert verdict.here.startswith(f"{sum(values) / len(values):.1%} (")

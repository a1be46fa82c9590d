"""Intervals of paired figures, and the judgement of a goal by one."""

from __future__ import annotations

from random import Random

import pytest

from bench.findings.intervals import MET, MISSED, OPEN, Interval, judged, noise, ratio


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

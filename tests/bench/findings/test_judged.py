"""Goals that are judged by intervals: met, missed and open, and what a reader is told."""

from __future__ import annotations

from math import inf

import pytest

from bench.findings.intervals import MET, MISSED, OPEN, Interval
from bench.findings.judged import (
    Judged,
    judged_distance,
    judged_interval,
    judged_ratio,
)
from bench.overhead.goals import missed

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

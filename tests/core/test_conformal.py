"""The interval of scores: its ranks, its coverage under drift, and censored scores."""

from math import inf
from random import Random
from statistics import fmean

import pytest

from router.core.conformal import LEAST, LEVEL_LEAST, MISSES, PENDING, WINDOW, ConformalInterval


def filled(scores: list[float]) -> ConformalInterval:
    interval = ConformalInterval()
    for score in scores:
        interval.add(score)
    return interval


def covered(scores: list[float]) -> tuple[float, float]:
    """Play scores one by one. Returns the shares of misses below and above the intervals."""
    interval = ConformalInterval()
    below = above = judged = 0
    for score in scores:
        if interval.is_known:
            is_below, is_above = score < interval.low(), score > interval.high()
            interval.judged(is_below, is_above)
            judged += 1
            below += is_below
            above += is_above
        interval.add(score)
    return below / judged, above / judged


def test_nothing_is_known_before_the_outer_ranks_exist() -> None:
    scores = [float(n) for n in range(LEAST)]
    assert not filled(scores[:-1]).is_known
    interval = filled(scores)
    assert interval.is_known
    assert (interval.low(), interval.high()) == (0.0, LEAST - 1.0)


def test_the_bounds_have_the_ranks_of_split_conformal_prediction() -> None:
    scores = [float(n) for n in range(1, 100)]
    Random(1).shuffle(scores)
    interval = filled(scores)  # ranks 0.05 * 100 and 0.95 * 100
    assert (interval.low(), interval.middle(), interval.high()) == (5.0, 50.0, 95.0)


def test_only_the_last_scores_are_kept() -> None:
    scores = [float(n) for n in range(10 * WINDOW)]
    interval = filled(scores)
    assert len(interval._scores) == len(interval._ring) == WINDOW
    assert min(interval._scores) == 9 * WINDOW


def test_the_coverage_is_exact_for_scores_in_random_order() -> None:
    rng = Random(2)
    below, above = covered([rng.gauss(0.0, 1.0) ** 3 for _ in range(6000)])
    assert below == pytest.approx(MISSES, abs=0.01)
    assert above == pytest.approx(MISSES, abs=0.01)


def drifting(count: int) -> list[float]:
    """Scores whose middle moves up steadily, by a standard deviation in the time of a window."""
    rng = Random(3)
    return [0.004 * n + rng.gauss(0.0, 1.0) for n in range(count)]


def test_the_levels_follow_a_drift() -> None:
    below, above = covered(drifting(4000))
    assert below == pytest.approx(MISSES, abs=0.03)
    assert above == pytest.approx(MISSES, abs=0.02)


def test_a_miss_counts_for_less_while_many_intervals_are_pending() -> None:
    """They were given before the miss was known, and will report the same change."""
    alone, crowded = ConformalInterval(), ConformalInterval()
    alone.judged(False, True)
    crowded.judged(False, True, pending=int(3 * PENDING))
    assert MISSES - crowded.high_level == pytest.approx((MISSES - alone.high_level) / 4.0)


def test_misses_widen_the_interval_beyond_all_scores() -> None:
    interval = filled([float(n) for n in range(100)])
    for _ in range(20):
        interval.judged(True, True)
    assert interval.low_level == interval.high_level == LEVEL_LEAST
    assert interval.low() < 0.0 and interval.high() > 99.0
    wide = interval.high()
    for _ in range(1000):
        interval.judged(False, False)
    assert interval.high() < 99.0 < wide


def test_censored_scores_do_not_make_the_interval_short() -> None:
    """Each score is cut at random. The bounds are, on average, those of the scores without cuts."""
    off: list[list[float]] = []
    for seed in range(40):
        rng = Random(seed)
        interval, whole, seen = ConformalInterval(), ConformalInterval(), ConformalInterval()
        for _ in range(WINDOW):
            score, cut = rng.expovariate(1.0), rng.expovariate(0.5)
            whole.add(score)
            interval.add(min(score, cut), score > cut)
            if score <= cut:
                seen.add(score)
        pairs = (interval, whole), (seen, whole)
        off.append([one.middle() - other.middle() for one, other in pairs])
        off[-1] += [interval.high() - whole.high(), interval.low() - whole.low()]
    middle, uncut, high, low = (fmean(column) for column in zip(*off, strict=True))
    assert (middle, low) == (pytest.approx(0.0, abs=0.04), pytest.approx(0.0, abs=0.01))
    assert abs(high) < 0.4  # The upper bound of the scores without cuts is 3.0.
    assert uncut < -0.2, "the cuts must matter"


def test_if_the_slowest_are_all_cut_the_bound_is_not_below_them() -> None:
    interval = filled([float(n) for n in range(80)])
    for _ in range(20):
        interval.add(90.0, True)
    assert interval.middle() == pytest.approx(50.0, abs=1.0)
    assert 90.0 < interval.high() < inf


def test_a_censored_score_below_all_others_is_left_out() -> None:
    interval = ConformalInterval()
    interval.add(1.0, True)
    assert not interval._ring
    interval.add(0.0)
    for _ in range(1000):
        interval.add(-1.0, True)
    assert interval._ring == [0.0]

"""Ratios in a sliding window give the same curve as all their samples; old samples are
dropped.
"""

from math import inf, nan
from random import Random

import pytest
from hypothesis import given, strategies as st

from policies.hedging.curve import Curve
from router.dispatch.hedging.ratios import BINS, GROWTH, LEAST, MOST, SLICES, UPPER, Ratios, bin_of
from router.dispatch.hedging.ttft_prior import STREAMS, WHOLES, Prior

NO_PRIOR = [0.0] * BINS


def curve(ratios: Ratios) -> Curve:
    return ratios.curve(NO_PRIOR, 0.0)


def survival(samples: list[tuple[float, bool]], time: float) -> float:
    """The Kaplan-Meier estimate from the samples: (ratio, whether it was cancelled)."""
    share = 1.0
    for value in sorted({v for v, is_cut in samples if not is_cut and v <= time}):
        at_risk = sum(v >= value for v, _ in samples)
        ended = sum(v == value and not is_cut for v, is_cut in samples)
        share *= 1.0 - ended / at_risk
    return share


@pytest.mark.parametrize("seed", range(5))
def test_it_is_the_curve_of_all_samples_in_the_window(seed: int) -> None:
    """Minute by minute, the curve is compared with the product over all samples in the window."""
    rng, now = Random(seed), 0.0
    ratios = Ratios(now)
    slices: list[list[tuple[float, bool]]] = [[]]
    began = [now]
    for second in range(120):
        now += 1.0
        for _ in range(rng.choice((0, 3, 30))):
            value = rng.lognormvariate(0.0, 0.3) * (10.0 if rng.random() < 0.1 else 1.0)
            is_cut = rng.random() < 0.15
            slices[-1].append((value, is_cut))
            if is_cut:
                ratios.add_cut(value)
            else:
                ratios.add(value)
        ratios.slide(now)
        if now - began[-1] >= 5.0 and sum(not is_cut for _, is_cut in slices[-1]) >= 16:
            slices.append([])
            began.append(now)
            del slices[:-SLICES], began[:-SLICES]
        assert ratios._began[0] == began[0]
        if second % 10 < 9:
            continue
        samples = [sample for one in slices for sample in one]
        found = curve(ratios)
        assert found.shown == ratios.shown == sum(not is_cut for _, is_cut in samples)
        for time in (0.5, 0.8, 1.0, 1.3, 2.0, 8.0, 12.0, 20.0):
            # The curve is drawn through the upper ends of bins: at most one bin later.
            late, early = survival(samples, time), survival(samples, time / GROWTH**1.01)
            assert late - 0.02 <= found.survival(time) <= early + 0.02


def test_the_window_slides() -> None:
    ratios, now = Ratios(0.0), 0.0
    for ratio in (1.0, 3.0):
        for _ in range(40):
            now += 1.0
            for _ in range(20):
                ratios.add(ratio)
            ratios.slide(now)
        assert curve(ratios).quantile(0.5) == pytest.approx(ratio, rel=0.05)
    assert curve(ratios).survival(2.0) == 1.0  # none of the first samples is left


def test_where_few_come_the_window_waits_for_them() -> None:
    ratios, now = Ratios(0.0), 0.0
    for _ in range(200):
        now += 10.0
        ratios.add(1.0)
        ratios.slide(now)
    assert 20 <= curve(ratios).shown <= SLICES * 7


def test_a_sample_is_not_late_because_of_its_bin() -> None:
    rng, ratios = Random(1), Ratios(0.0)
    seen = [rng.uniform(0.999, 1.001) for _ in range(200)]
    for ratio in seen:
        ratios.add(ratio)
    assert max(seen) <= curve(ratios).quantile(1.0) <= 1.05


def test_the_prior_counts_for_as_many_as_it_is_given() -> None:
    prior = [0.0] * BINS
    prior[bin_of(1.0)] = 0.9
    prior[bin_of(5.0)] = 0.1
    ratios = Ratios(0.0)
    assert ratios.curve(prior, 20.0).survival(2.0) == pytest.approx(0.1)
    for _ in range(10):
        ratios.add(1.0)
    assert ratios.curve(prior, 10.0).survival(2.0) == pytest.approx(0.05)
    assert ratios.curve(prior, 0.0).survival(2.0) == 0.0


@pytest.mark.parametrize("ratio", [0.0, -1.0, 1e-300, LEAST, 1.0, MOST, 1e300, inf, nan])
def test_any_ratio_has_a_bin(ratio: float) -> None:
    assert 0 <= bin_of(ratio) < BINS


def test_memory_is_bounded_by_bins() -> None:
    rng, ratios = Random(1), Ratios(0.0)
    for _ in range(20_000):
        ratios.add(rng.lognormvariate(0.0, 5.0))
        ratios.add_cut(rng.lognormvariate(0.0, 5.0))
    assert len(ratios._slices) == 1
    assert len(ratios._slices[0]) <= 2 * BINS


@pytest.mark.parametrize("prior", [STREAMS, WHOLES])
@given(
    st.dictionaries(st.integers(0, 2 * BINS - 1), st.integers(1, 99), max_size=9),
    st.floats(0.0, 20.0),
)
def test_a_curve_of_any_counts_and_a_prior(
    prior: Prior, counts: dict[int, int], weight: float
) -> None:
    ratios = Ratios(0.0)
    for bin, count in counts.items():
        for _ in range(count):
            if bin < BINS:
                ratios.add(UPPER[bin])
            else:
                ratios.add_cut(UPPER[bin - BINS])
    curve = ratios.curve(prior.shares, weight)
    assert 0.0 <= curve.survival(1.0) <= 1.0
    assert curve.mean >= 0.0

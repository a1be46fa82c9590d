"""The survival curve compared with counting and with the truth behind censored samples."""

from math import inf
from random import Random

import pytest
from hypothesis import given, strategies as st

from policies.hedging.curve import Curve, curve_of

values = st.lists(st.floats(0.01, 100.0), min_size=1, max_size=60)
times = st.floats(0.0, 200.0)


def curve(shown: list[float], cut: list[float] | None = None) -> Curve:
    return curve_of([(v, 1) for v in shown], [(v, 1) for v in cut or []])


@given(values, st.lists(st.floats(0.01, 100.0), max_size=60), times, times)
def test_shares_fall_areas_rise_and_what_remains_adds_up(
    shown: list[float], cut: list[float], one: float, other: float
) -> None:
    found = curve(shown, cut)
    low, high = sorted((one, other))
    assert 1.0 >= found.survival(low) >= found.survival(high) >= 0.0
    assert found.area(low) <= found.area(high) + 1e-9
    assert found.area(high) <= found.mean + 1e-9
    share = found.survival(low)
    if share > 1e-6 and low < found.last:
        assert found.area(low) + share * found.remaining(low) == pytest.approx(found.mean)


def test_cut_samples_bias_nothing() -> None:
    """One in twenty takes ten times as long; most that exceed 1.5 are cancelled at about 2.5.

    Without cancelled samples the tail would vanish; if counted as answers, it would end at 2.5.
    """
    rng = Random(1)
    truth, shown, cut = [], [], []
    for _ in range(40_000):
        took = rng.uniform(0.9, 1.1) * (10.0 if rng.random() < 0.05 else 1.0)
        truth.append(took)
        ends = 1.5 + rng.uniform(0.9, 1.1) * (10.0 if rng.random() < 0.05 else 1.0)
        (shown if took <= ends else cut).append(min(took, ends))
    found, whole = curve(shown, cut), curve(truth)
    assert len(cut) > 1500
    for time in (0.95, 1.0, 1.5, 5.0, 9.5):
        assert found.survival(time) == pytest.approx(whole.survival(time), rel=0.05)
    assert found.quantile(0.97) == pytest.approx(whole.quantile(0.97), rel=0.05)
    assert found.remaining(1.5) == pytest.approx(whole.remaining(1.5), rel=0.05)
    assert curve(shown).survival(1.5) < whole.survival(1.5) / 5  # without cancelled samples


def test_a_tail_of_which_no_end_was_seen_goes_on() -> None:
    found = curve([1.0] * 95, [2.0] * 5)
    assert found.survival(1.5) == pytest.approx(0.05)
    assert found.survival(4.0) == pytest.approx(0.05 / 4)
    assert found.remaining(2.0) == pytest.approx(2.0)
    assert found.remaining(1.5) == pytest.approx(0.5 + 2.0)
    assert found.quantile(0.9) == 1.0
    assert found.quantile(0.9875) == pytest.approx(4.0)
    assert found.quantile(1.0) == inf


def test_equal_times_end_before_they_are_cut() -> None:
    assert curve([1.0], [1.0]).survival(1.0) == 0.5

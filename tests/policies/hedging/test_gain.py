"""The best delay of a copy, against the formula at every moment of the curve."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.hedging.curve import Curve, curve_of
from policies.hedging.gain import best_moment

BULK = [(0.8 + 0.02 * n, 45.0) for n in range(21)]
TAIL = [(8.0 + 0.2 * n, 5.0) for n in range(11)]


def gain(curve: Curve, delay: float, paid: float, price: float) -> float:
    late = curve.survival(delay)
    each = curve.mean - curve.area(delay + 1.0) - price * late
    return min(1.0, paid / late) * each if late else each


def test_with_a_tail_a_copy_is_sent_when_the_bulk_has_answered() -> None:
    curve = curve_of([*BULK, *TAIL])
    assert best_moment(curve, 0.1, 0.0) == pytest.approx(1.2, abs=0.05)


def test_a_small_budget_waits_until_it_is_sure() -> None:
    """A budget for fewer copies than there are late requests buys nothing by an early copy."""
    curve = curve_of([*BULK, *TAIL])
    early, late = best_moment(curve, 1.0, 0.0), best_moment(curve, 0.001, 0.0)
    assert early <= late
    assert late >= 1.2


def test_a_high_price_puts_the_copy_behind_all_that_was_seen() -> None:
    curve = curve_of([*BULK, *TAIL])
    assert best_moment(curve, 0.1, 1000.0) == pytest.approx(10.0)


def test_without_samples_the_delay_is_0() -> None:
    assert best_moment(curve_of([]), 0.1, 1.0) == 0.0


def test_equal_gains_take_the_earliest_moment() -> None:
    """No delay gains time: all answers take the same time, and copies are free."""
    assert best_moment(curve_of([(1.0, 10.0)]), 1.0, 0.0) == 0.0


SAMPLES = st.lists(
    st.tuples(st.floats(0.1, 20.0), st.sampled_from([1.0, 3.0, 0.001])), min_size=1, max_size=12
)


@given(SAMPLES, SAMPLES | st.just([]), st.sampled_from([0.01, 0.1, 1.0]), st.floats(0.0, 5.0))
def test_no_delay_gains_more(
    shown: list[tuple[float, float]],
    cut: list[tuple[float, float]],
    paid: float,
    price: float,
) -> None:
    curve = curve_of(shown, cut)
    found = best_moment(curve, paid, price)
    assert found in curve.times(0.0)
    assert 0.0 <= found < inf
    best = gain(curve, found, paid, price)
    for moment in curve.times(0.0):
        assert gain(curve, moment, paid, price) <= best + 1e-9 * (1.0 + abs(best))

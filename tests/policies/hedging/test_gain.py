"""The best delay of a copy, against the formula at every moment of the curve."""

from math import inf

from hypothesis import given, strategies as st

from policies.hedging.curve import Curve, curve_of
from policies.hedging.gain import best_moment


def gain(curve: Curve, delay: float, paid: float, price: float) -> float:
    late = curve.survival(delay)
    each = curve.mean - curve.area(delay + 1.0) - price * late
    return min(1.0, paid / late) * each if late else each


def test_without_samples_the_delay_is_0() -> None:
    assert best_moment(curve_of([]), 0.1, 1.0) == 0.0


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

"""The round-trip time is the shortest sample, and an old sample is dropped."""

from math import inf, nan

import pytest
from hypothesis import given, strategies as st

from router.core.round_trip import WINDOW_S, RoundTrip


def test_a_busy_answer_does_not_make_the_replica_further_away() -> None:
    trip = RoundTrip()
    for number, sample_s in enumerate((0.09, 0.08, 0.5, 2.0)):
        trip.add(sample_s, 100.0 + number)
    assert trip.seconds == 0.08


def test_a_new_route_is_known_after_two_windows() -> None:
    trip = RoundTrip()
    trip.add(0.01, 0.0)
    trip.add(0.08, WINDOW_S)
    assert trip.seconds == 0.01
    trip.add(0.09, 2.0 * WINDOW_S)
    assert trip.seconds == 0.08


@pytest.mark.parametrize("sample_s", [0.0, -1.0, inf, nan])
def test_an_impossible_sample_is_ignored(sample_s: float) -> None:
    trip = RoundTrip()
    trip.add(0.02, 0.0)
    trip.add(sample_s, 1.0)
    assert trip.seconds == 0.02


@given(
    st.lists(
        st.tuples(st.floats(1e-6, 10.0), st.floats(0.0, 200.0)),
        min_size=1,
        max_size=40,
    )
)
def test_it_is_one_of_the_samples_of_the_last_two_windows(
    samples: list[tuple[float, float]],
) -> None:
    trip, now = RoundTrip(), 0.0
    seen: list[tuple[float, float]] = []
    for sample_s, pause_s in samples:
        now += pause_s
        trip.add(sample_s, now)
        seen.append((now, sample_s))
        assert trip.seconds <= sample_s
        assert trip.seconds in [s for at, s in seen if at > now - 2.0 * WINDOW_S]

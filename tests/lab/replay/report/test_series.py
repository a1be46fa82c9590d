"""Bins over time: their number is bounded, and merging bins loses no value."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.lab.replay.report.group import Series

times = st.lists(st.floats(0.0, 1e7), min_size=1, max_size=60)


def series_of(moments: list[float], bins_max: int = 8) -> Series:
    series = Series(bins_max)
    for moment in moments:
        series.answered(moment, 1.0)
        series.sampled(moment, [0, 2])
    return series


@given(times, st.integers(1, 16))
def test_the_number_of_bins_is_bounded_and_nothing_is_lost(moments: list[float], most: int) -> None:
    series = series_of(moments, most)
    assert len(series) <= most
    for found in (series, series.coarse(3)):
        assert sum(one.requests for one in found) == len(moments)
        assert sum(one.ttft.count for one in found) == len(moments)
        assert sum(one.samples for one in found) == len(moments)
        assert sum(one.load_max for one in found) == 2 * len(moments)
    assert len(series.coarse(3)) <= 3


@given(times)
def test_everything_is_in_the_bin_of_its_time(moments: list[float]) -> None:
    series = series_of(moments)
    counts = [0] * len(series)
    for moment in moments:
        counts[int(moment / series.width_s)] += 1
    assert [one.requests for one in series] == counts


def test_a_sample_is_the_mean_and_its_ends() -> None:
    series = Series()
    series.sampled(0.0, [1, 2, 6])
    (one,) = series
    assert (one.load, one.load_min, one.load_max) == (3.0, 1.0, 6.0)


def test_bins_double_until_they_reach() -> None:
    series = Series(4)
    series.answered(0.0, 1.0)
    series.answered(100.0, 1.0)
    assert series.width_s == pytest.approx(32.0)
    assert [one.requests for one in series] == [1, 0, 0, 1]

"""Consecutive steps: end times and current step in closed form equal those of a sum."""

from __future__ import annotations

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from router.lab.emulator.core.leap import Leap


def started(begin: float, first_s: float, more_s: float, steps: int) -> Leap:
    leap = Leap()
    leap.start(begin, first_s, more_s, steps)
    return leap


def ends(begin: float, first_s: float, more_s: float, steps: int) -> list[float]:
    """End times of the steps, added step by step."""
    return list(accumulate((first_s + k * more_s for k in range(steps)), initial=begin))[1:]


eighths = st.integers(0, 80).map(lambda number: number / 8)


@given(eighths, eighths, eighths, st.integers(1, 50), st.integers(-1, 60), eighths)
def test_the_step_under_way_is_the_first_that_ends_at_or_after_now(
    begin: float, first_s: float, more_s: float, steps: int, near: int, off: float
) -> None:
    first_s = max(first_s, more_s)  # as in an engine: a sequence has more than one token
    leap = started(begin, first_s, more_s, steps)
    expected = ends(begin, first_s, more_s, steps)
    assert [leap.end_of(step) for step in range(1, steps + 1)] == expected
    assert leap.end == expected[-1]
    now = ([begin, *expected])[min(near, steps)] + (off - 5)  # exactly at an end, or anywhere
    under_way = next((step for step, end in enumerate(expected, 1) if end >= now), steps)
    assert leap.under_way(now) == under_way


@given(
    st.floats(0, 1e9),
    st.floats(1e-6, 1),
    st.floats(0, 1e-2),
    st.integers(1, 10_000),
    st.floats(0, 1.1),
)
def test_rounding_does_not_take_it_to_another_step(
    begin: float, first_s: float, more_s: float, steps: int, part: float
) -> None:
    leap = started(begin, first_s + more_s, more_s, steps)
    now = begin + part * (leap.end - begin)
    step = leap.under_way(now)
    assert step == 1 or leap.end_of(step - 1) < now
    assert step == steps or leap.end_of(step) >= now


def test_of_steps_shorter_than_the_clock_can_tell_apart_it_is_the_first() -> None:
    leap = started(1e9, 1e-9, 0.0, 1000)
    for now in {leap.end_of(step) for step in range(1, 1001)} - {1e9}:
        step = leap.under_way(now)
        assert leap.end_of(step - 1) < now == leap.end_of(step)


def test_a_cut_leap_ends_with_that_step_and_can_be_put_off() -> None:
    leap = started(10.0, 1.0, 0.5, 9)
    leap.cut(3)
    assert (leap.steps, leap.end) == (3, 14.5)
    leap.cut(7)
    assert (leap.steps, leap.end) == (3, 14.5)
    leap.put_off(2.0)
    assert leap.end == 16.5
    assert leap.under_way(100.0) == 3

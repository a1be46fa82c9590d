"""The urgency scale: a number belongs to the nearest class, limits hold, a step stays in its
class.
"""

import pytest
from hypothesis import given, strategies as st

from router.core.urgency import (
    CLASSES,
    Urgency,
    class_of,
    stepped,
)

ON_SCALE = st.floats(0, 4)


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (-9.0, "critical"),
        (0.49, "critical"),
        (0.5, "high"),
        (1.4999, "high"),
        (1.5, "normal"),
        (2.5, "low"),
        (3.5, "batch"),
        (4.49, "batch"),
        (1e300, "batch"),
    ],
)
def test_the_nearest_class(number: float, name: str) -> None:
    assert CLASSES[class_of(number)] == name
    assert Urgency(number, "body").name == name


@given(ON_SCALE, st.integers(0, 10**9))
def test_a_step_stays_in_its_class(number: float, steps: int) -> None:
    moved = stepped(number, steps)
    assert moved >= number
    assert class_of(moved) == class_of(number)


@given(st.integers(0, 4), st.integers(0, 10_000))
def test_every_step_is_less_urgent_than_the_one_before(rank: int, steps: int) -> None:
    assert stepped(float(rank), steps) < stepped(float(rank), steps + 1)


def test_no_step_is_no_change() -> None:
    assert stepped(2.25, 0) == 2.25

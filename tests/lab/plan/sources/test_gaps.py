"""Windows without samples are not windows without demand."""

from __future__ import annotations

import pytest

from router.lab.plan.sources.prometheus import filled, gaps


@pytest.mark.parametrize(
    ("recorded", "missing"),
    [
        ("xxxx", []),
        ("x.xxx", [1, 2]),
        ("xx.xx", [1, 2, 3]),
        ("xxx..xxx", [2, 3, 4, 5]),
        ("xxx.x", [2, 3]),  # the last window stays as it is
        ("x", []),
        ("xx", []),
    ],
)
def test_a_window_beside_one_without_samples_is_missing_too(
    recorded: str, missing: list[int]
) -> None:
    assert gaps([sign == "x" for sign in recorded]) == missing


def test_the_day_before_fills_a_gap() -> None:
    values = [1.0, 2.0, 3.0, 4.0, 0.0, 0.0, 0.0, 8.0]
    assert filled(values, [4, 5, 6], 4) == [1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 8.0]
    assert values[4] == 0.0, "the argument is not changed"


def test_on_the_first_day_the_window_before_fills_it() -> None:
    assert filled([5.0, 0.0, 0.0, 7.0], [1, 2], 96) == [5.0, 5.0, 5.0, 7.0]

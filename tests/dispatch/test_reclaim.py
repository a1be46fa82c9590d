"""Predictions whether a request ends before its machine goes away."""

import pytest

from router.dispatch.reclaim import UNKNOWN, ends_by, remaining

NOW = 100.0


@pytest.mark.parametrize(
    ("due", "wait_s", "tokens", "tpot_s", "in_time"),
    [
        (102.0, 1.0, 100.0, 0.01, True),
        (101.9, 1.0, 100.0, 0.01, False),
        (102.0, 1.0, 101.0, 0.01, False),
        (100.0, 0.0, 0.0, 0.0, True),
        (99.0, 0.0, 0.0, 0.0, False),
        (999.0, UNKNOWN, 0.0, 0.0, False),
        (999.0, 0.0, UNKNOWN, 0.01, False),
        (999.0, 0.0, 1.0, UNKNOWN, False),
    ],
)
def test_the_prediction(
    due: float, wait_s: float, tokens: float, tpot_s: float, in_time: bool
) -> None:
    assert ends_by(due, NOW, wait_s, tokens, tpot_s) is in_time


def test_what_is_used_up_is_unknown() -> None:
    assert remaining(10.0, 4.0) == 6.0
    assert remaining(10.0, 10.0) == UNKNOWN  # it takes longer than usual: the rest is unknown
    assert remaining(0.0, 0.0) == UNKNOWN

"""The mean absolute and signed errors of predictions."""

import pytest

from router.core.prediction_error import MOST, SMOOTHING, PredictionError


def test_errors_are_relative_to_the_actual_time() -> None:
    error = PredictionError()
    error.add(1.5, 1.0)
    assert (error.count, error.absolute, error.signed) == (1, 0.5, 0.5)
    error.add(0.5, 1.0)
    assert (error.absolute, error.signed) == pytest.approx((0.5, 0.0))
    assert (error.absolute_total, error.signed_total) == pytest.approx((1.0, 0.0))


def test_old_errors_are_forgotten() -> None:
    error = PredictionError()
    for _ in range(1000):
        error.add(2.0, 1.0)
    for _ in range(int(3.0 / SMOOTHING)):
        error.add(0.9, 1.0)
    assert error.absolute == pytest.approx(0.1, abs=0.06)
    assert error.signed == pytest.approx(-0.1, abs=0.06)
    assert error.absolute_total == pytest.approx(1000 + 0.1 * int(3.0 / SMOOTHING))


def test_one_error_is_limited() -> None:
    error = PredictionError()
    error.add(1e9, 1e-9)
    assert error.absolute == error.signed == MOST

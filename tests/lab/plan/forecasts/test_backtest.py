"""The choice of a method, its error and its band."""

from collections.abc import Sequence

import pytest

from router.lab.plan.forecasts.backtest import BAND, Chosen, choose, held_out, methods
from router.lab.plan.forecasts.method import Fitted, Method, SeasonalNaive
from tests.lab.plan.forecasts.curves import DAY, WINDOW_S, daily, unpredictable

SEASONAL = SeasonalNaive(DAY, "day")


class Factor(Method, Fitted):
    """Forecasts the last value times a factor; records what it was given."""

    least = 1

    def __init__(self, factor: float) -> None:
        self.name = f"times {factor:g}"
        self.factor = factor
        self.fits: list[int] = []

    def fit(self, history: Sequence[float]) -> Fitted:
        self.fits.append(len(history))
        return self

    def predict(self, history: Sequence[float], steps: int) -> list[float]:
        return [self.factor * history[-1]] * steps


class Peeking(Factor):
    """Fails if it is given a value that it has to forecast."""

    def __init__(self, values: Sequence[float]) -> None:
        super().__init__(1.0)
        self.values = list(values)
        self.origins: list[int] = []

    def predict(self, history: Sequence[float], steps: int) -> list[float]:
        self.origins.append(len(history))
        assert list(history) == self.values[: len(history)]
        return super().predict(history, steps)


def chosen(values: Sequence[float], steps: int, *given: Method, limit: float = 0.35) -> Chosen:
    return choose(values, steps, WINDOW_S, limit, given)


def test_the_mean_of_the_good_methods_is_used() -> None:
    values = [100.0] * 80
    found = chosen(values, 3, Factor(1.18), Factor(1.1), Factor(0.7))
    names = ["times 1.1", "times 1.18", "times 0.7"]
    assert [one.method for one in found.tested] == ["mean of times 1.1, times 1.18", *names]
    assert [one.error for one in found.tested] == pytest.approx([0.14, 0.1, 0.18, 0.3])
    forecast = found.forecast(values, 3)
    assert forecast.mean == pytest.approx((114.0,) * 3)
    assert forecast.error == pytest.approx(0.14)
    assert forecast.high == pytest.approx(forecast.mean)
    assert forecast.low == pytest.approx((100.0,) * 3)


def test_errors_in_opposite_directions_cancel() -> None:
    values = [100.0] * 80
    found = chosen(values, 3, Factor(1.1), Factor(0.9)).forecast(values, 3)
    assert found.error == pytest.approx(0.0)
    assert found.mean == found.high == pytest.approx((100.0,) * 3)


class Once(Factor):
    """Can be fitted to the tested values only."""

    def fit(self, history: Sequence[float]) -> Fitted:
        if self.fits:
            raise ValueError("not again")
        return super().fit(history)


def test_a_method_that_cannot_be_fitted_again_is_left_out() -> None:
    values = [100.0] * 80
    found = chosen(values, 3, Once(1.0), Factor(1.1))
    assert [one.method for one in found.tested] == ["times 1.1", "times 1"]
    assert found.forecast(values, 3).mean == pytest.approx((110.0,) * 3)
    assert chosen(values, 3, Once(1.0)).distrust == "no forecast (times 1: cannot be fitted)"


def test_held_out_values_are_not_used_for_their_forecast() -> None:
    values = daily(10 * DAY, noise=0.1)
    method = Peeking(values)
    chosen(values, 5, method)
    assert method.origins == held_out(len(values), 5, WINDOW_S)
    assert max(method.origins) == len(values) - 5
    # The parameters are those of the values before the first origin; the last fit has all values.
    assert method.fits == [method.origins[0], len(values)]


def test_a_bad_backtest_is_distrusted() -> None:
    values = unpredictable(10 * DAY)
    found = chosen(values, 4, SEASONAL)
    forecast = found.forecast(values, 4)
    assert forecast.error is not None and forecast.error > 0.35
    assert "above the limit of 35%" in forecast.distrust
    assert chosen(values, 4, SEASONAL, limit=100.0).distrust == ""


def test_a_short_history_is_distrusted() -> None:
    found = chosen([5.0] * 10, 3, SEASONAL).forecast([5.0] * 10, 3)
    assert (found.method, found.error) == ("", None)
    assert found.distrust.startswith("no forecast (day: needs about")
    assert found.high == (5.0,) * 3


def test_the_band_has_its_share_of_new_values() -> None:
    values = daily(60 * DAY, noise=0.1)
    inside = 0
    origins = range(40 * DAY, 60 * DAY - 4, 2)
    for origin in origins:
        if (origin - 40 * DAY) % DAY == 0:
            method = chosen(values[:origin], 4, SEASONAL)
        forecast = method.forecast(values[:origin], 4)
        inside += forecast.low[3] <= values[origin + 3] <= forecast.high[3]
    assert inside / len(origins) == pytest.approx(2 * BAND - 1, abs=0.08)


def test_the_methods_that_a_history_allows() -> None:
    def names(windows: int) -> list[str]:
        return [one.name for one in methods(WINDOW_S, windows)]

    assert names(DAY) == ["ARIMA(3,1,2)"]
    assert names(DAY + 1) == ["seasonal naive (day)", "ARIMA(3,1,2)"]
    assert "day profile" not in names(2 * DAY)
    assert "day profile" in names(2 * DAY + 1)
    assert "seasonal naive (week)" in names(7 * DAY + 1)

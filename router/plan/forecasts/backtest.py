"""Compares forecast methods on held-out windows, and forecasts with the best method.

The last part of the series is held out, and each method is fitted to the rest. The forecasts that
are tested begin at several windows of the held-out part, the origins. From each origin the method
forecasts the next windows with the values before the origin; the parameters stay those of the fit.
The method with the smallest error is then fitted to the whole series. The band of a forecast is
made of the quantiles of the held-out errors, relative to the forecast, for each step ahead.

All functions are pure. Must never: use a value at or after an origin for its forecast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from router.plan.forecasts.arima import Arima
from router.plan.forecasts.day_profile import DayProfile
from router.plan.forecasts.forecast import Backtest, Forecast
from router.plan.forecasts.method import Fitted, Method
from router.plan.forecasts.seasonal_naive import SeasonalNaive

DAY_S: Final = 86400.0
BAND: Final = 0.9  # share of the held-out values at or below the upper bound of the band
HELD_OUT: Final = 0.25  # maximum share of the series that is held out; at most one day is held out
ORIGINS: Final = 24
ORIGINS_MIN: Final = 6
# Share of the mean value; errors of smaller forecasts are relative to this share of the mean.
_FLOOR: Final = 0.1


def methods(window_s: float, windows: int) -> list[Method]:
    """Return the methods that can be used for a series of this many windows."""
    found: list[Method] = []
    for days, name in ((1, "day"), (7, "week")):
        season = round(days * DAY_S / window_s)
        if season >= 2 and windows > season:
            found.append(SeasonalNaive(season, f"seasonal naive ({name})"))
    day = round(DAY_S / window_s)
    if day >= 2 and windows > 2 * day:
        found.append(DayProfile(day))
    found.append(Arima())
    return found


@dataclass(frozen=True, slots=True)
class Chosen:
    """The best method, fitted to a series, with the errors of its backtest on held-out windows."""

    tested: tuple[Backtest, ...]  # every method, the chosen one first
    fitted: Fitted | None  # None: no method could be used
    # The quantiles of the relative errors between which the band is, for each step ahead.
    band: Sequence[tuple[float, float]]
    floor: float
    distrust: str

    def forecast(self, values: Sequence[float], steps: int) -> Forecast:
        """Forecast the windows after `values`.

        `values` must begin at the same window as the series to which the method was fitted.
        """
        if self.fitted is None:
            flat = (values[-1] if values else 0.0,) * steps
            return Forecast("", self.tested, flat, flat, flat, self.distrust)
        mean = self.fitted.predict(values, steps)
        low, high = _band(mean, self.band, self.floor)
        return Forecast(self.tested[0].method, self.tested, tuple(mean), low, high, self.distrust)


def choose(
    values: Sequence[float], steps: int, window_s: float, limit: float, given: Sequence[Method]
) -> Chosen:
    """Compare the methods in `given`, and fit the best one to the whole series.

    `steps`: the number of windows of a forecast. `limit`: a forecast with a larger error is not
    trusted. Raises MissingExtra.
    """
    tests = [_test(method, values, steps, window_s) for method in given]
    tests.sort(key=lambda test: inf if test[0].error is None else test[0].error)
    tested = tuple(test[0] for test in tests)
    for backtest, ratios, method in tests:
        if backtest.error is None:
            break
        try:
            fitted = method.fit(values)
        except ValueError:  # the whole series cannot be fitted, although its beginning could
            continue
        first = (backtest, *(one for one in tested if one is not backtest))
        distrust = ""
        if backtest.error > limit:
            distrust = (
                f"error {backtest.error:.0%} of the best method, above the limit of {limit:.0%}"
            )
        return Chosen(first, fitted, _quantiles(ratios), _floor(values), distrust)
    notes = "; ".join(f"{one.method}: {one.note or 'cannot be fitted'}" for one in tested)
    return Chosen(tested, None, (), 0.0, f"no forecast ({notes or 'the history is too short'})")


def _quantiles(ratios: Sequence[list[float]]) -> list[tuple[float, float]]:
    return [
        (_quantile(errors, 1.0 - BAND), _quantile(errors, BAND)) for errors in map(sorted, ratios)
    ]


def _band(
    mean: Sequence[float], band: Sequence[tuple[float, float]], floor: float
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the lower and the upper bounds of the steps. `band`: quantiles of relative errors."""
    low, high = [], []
    for value, (lower, upper) in zip(mean, band, strict=True):
        size = max(value, floor)
        low.append(max(0.0, value + lower * size))
        high.append(max(value, value + upper * size))
    return tuple(low), tuple(high)


# A test, the relative errors by step, and the method.
Tested = tuple[Backtest, list[list[float]], Method]


def _test(method: Method, values: Sequence[float], steps: int, window_s: float) -> Tested:
    origins = held_out(len(values), steps, window_s)
    if len(origins) < ORIGINS_MIN or origins[0] < method.least:
        needed = method.least + steps + ORIGINS_MIN
        note = f"needs about {max(needed, 3 * steps)} windows, there are {len(values)}"
        return Backtest(method.name, None, 0, note), [], method
    try:
        fitted = method.fit(values[: origins[0]])
    except ValueError as err:
        return Backtest(method.name, None, 0, str(err)), [], method
    return _measured(method, fitted, values, steps, origins)


def _measured(
    method: Method, fitted: Fitted, values: Sequence[float], steps: int, origins: Sequence[int]
) -> Tested:
    floor = _floor(values)
    ratios: list[list[float]] = [[] for _ in range(steps)]
    wrong = actual_sum = 0.0
    for origin in origins:
        predicted = fitted.predict(values[:origin], steps)
        for step, value in enumerate(predicted):
            actual = values[origin + step]
            wrong += abs(actual - value)
            actual_sum += actual
            ratios[step].append((actual - value) / max(value, floor))
    if actual_sum <= 0.0:
        note = "no demand in the held-out windows"
        return Backtest(method.name, None, len(origins), note), [], method
    return Backtest(method.name, wrong / actual_sum, len(origins)), ratios, method


def held_out(windows: int, steps: int, window_s: float) -> list[int]:
    """Return the windows at which held-out forecasts begin; each has `steps` windows after it."""
    day = max(1, round(DAY_S / window_s))
    begin = windows - min(int(HELD_OUT * windows), day)
    end = windows - steps
    if end < begin:
        return []
    stride = max(1, (end - begin) // (ORIGINS - 1))
    return list(range(begin, end + 1, stride))


def _floor(values: Sequence[float]) -> float:
    """Return the smallest value to which errors are relative; it is above 0."""
    return max(_FLOOR * sum(values) / len(values), 1e-9)


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Return the quantile `share` of sorted values, interpolated linearly."""
    place = share * (len(ordered) - 1)
    lower = int(place)
    upper = min(lower + 1, len(ordered) - 1)
    return ordered[lower] + (place - lower) * (ordered[upper] - ordered[lower])

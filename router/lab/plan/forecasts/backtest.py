"""Tests forecast methods on held-out windows, and forecasts with the mean of the good ones.

The last part of the series is held out, and each method is fitted to the rest. The forecasts that
are tested begin at several windows of the held-out part, the origins. From each origin the method
forecasts the next windows with the values before the origin; the parameters stay those of the fit.
The methods are then fitted to the whole series. The band of a forecast is made of the quantiles of
the held-out errors, relative to the forecast, for each step ahead.

The mean of several forecasts has rarely a large error, although one of them may have a smaller
error (J. M. Bates and C. W. J. Granger, "The combination of forecasts", Operational Research
Quarterly 20, 1969). The capacity of a plan depends on the large errors. So the mean is used, not
the method with the smallest error.

All functions are pure. Must never: use a value at or after an origin for its forecast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from router.lab.plan.forecasts.arima import Arima
from router.lab.plan.forecasts.method import (
    Backtest,
    DayProfile,
    Fitted,
    Forecast,
    Method,
    SeasonalNaive,
)

DAY_S: Final = 86400.0
BAND: Final = 0.9  # share of the held-out values at or below the upper bound of the band
HELD_OUT: Final = 0.25  # maximum share of the series that is held out; at most one day is held out
ORIGINS: Final = 24
ORIGINS_MIN: Final = 6
# A method with an error above this multiple of the smallest error is not used.
WORST: Final = 2.0
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
    """The methods in use, fitted to a series, with the errors on held-out windows.

    `tested`: the forecast in use first; then, if that is a mean, every method that was tested.
    """

    tested: tuple[Backtest, ...]
    fitted: Sequence[Fitted]  # empty: no method could be used
    # The quantiles of the relative errors between which the band is, for each step ahead.
    band: Sequence[tuple[float, float]]
    floor: float
    distrust: str

    def forecast(self, values: Sequence[float], steps: int) -> Forecast:
        """Forecast the windows after `values`.

        `values` must begin at the same window as the series to which the methods were fitted.
        """
        if not self.fitted:
            flat = (values[-1] if values else 0.0,) * steps
            return Forecast("", self.tested, flat, flat, flat, self.distrust)
        mean = _mean([one.predict(values, steps) for one in self.fitted])
        low, high = _band(mean, self.band, self.floor)
        return Forecast(self.tested[0].method, self.tested, tuple(mean), low, high, self.distrust)


@dataclass(frozen=True, slots=True)
class _Test:
    """A method, and its forecasts of held-out windows: one list for each origin."""

    method: Method
    backtest: Backtest
    predicted: Sequence[Sequence[float]] = ()


def choose(
    values: Sequence[float], steps: int, window_s: float, limit: float, given: Sequence[Method]
) -> Chosen:
    """Test the methods in `given`, and fit the good ones to the whole series.

    `steps`: the number of windows of a forecast. `limit`: a forecast with a larger error is not
    trusted. Raises MissingExtra.
    """
    origins = held_out(len(values), steps, window_s)
    tests = [_test(method, values, steps, origins) for method in given]
    tests.sort(key=lambda test: inf if test.backtest.error is None else test.backtest.error)
    tested = tuple(test.backtest for test in tests)
    used, fitted = _fitted(tests, values)
    if not used:
        notes = "; ".join(f"{one.method}: {one.note or 'cannot be fitted'}" for one in tested)
        return Chosen(tested, (), (), 0.0, f"no forecast ({notes or 'the history is too short'})")
    backtest = used[0].backtest
    predicted = used[0].predicted
    if len(used) > 1:
        predicted = [_mean(each) for each in zip(*(one.predicted for one in used), strict=True)]
        names = ", ".join(one.method.name for one in used)
        error = _error(predicted, values, origins)
        backtest = Backtest(f"mean of {names}", error, len(origins))
        tested = (backtest, *tested)
    else:
        tested = (backtest, *(one for one in tested if one is not backtest))
    distrust = ""
    if backtest.error is not None and backtest.error > limit:
        distrust = f"error {backtest.error:.0%} of the forecast, above the limit of {limit:.0%}"
    floor = _floor(values)
    band = _quantiles(_ratios(predicted, values, origins, floor))
    return Chosen(tested, fitted, band, floor, distrust)


def _fitted(tests: Sequence[_Test], values: Sequence[float]) -> tuple[list[_Test], list[Fitted]]:
    """Fit the good methods. `tests`: the smallest error first."""
    used: list[_Test] = []
    fitted: list[Fitted] = []
    for test in tests:
        error = test.backtest.error
        smallest = used[0].backtest.error if used else error
        if error is None or smallest is None or error > WORST * smallest:
            break
        try:
            fitted.append(test.method.fit(values))
        except ValueError:  # the whole series cannot be fitted, although its beginning could
            continue
        used.append(test)
    return used, fitted


def _mean(several: Sequence[Sequence[float]]) -> list[float]:
    """Return the means of values at the same place."""
    return [sum(values) / len(values) for values in zip(*several, strict=True)]


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


def _test(method: Method, values: Sequence[float], steps: int, origins: Sequence[int]) -> _Test:
    if len(origins) < ORIGINS_MIN or origins[0] < method.least:
        needed = method.least + steps + ORIGINS_MIN
        note = f"needs about {max(needed, 3 * steps)} windows, there are {len(values)}"
        return _Test(method, Backtest(method.name, None, 0, note))
    try:
        fitted = method.fit(values[: origins[0]])
    except ValueError as err:
        return _Test(method, Backtest(method.name, None, 0, str(err)))
    predicted = [fitted.predict(values[:origin], steps) for origin in origins]
    error = _error(predicted, values, origins)
    note = "no demand in the held-out windows" if error is None else ""
    return _Test(method, Backtest(method.name, error, len(origins), note), predicted)


def _error(
    predicted: Sequence[Sequence[float]], values: Sequence[float], origins: Sequence[int]
) -> float | None:
    """Return the error (WAPE) of forecasts; None: there was no demand."""
    wrong = actual_sum = 0.0
    for origin, forecast in zip(origins, predicted, strict=True):
        for step, value in enumerate(forecast):
            wrong += abs(values[origin + step] - value)
            actual_sum += values[origin + step]
    return wrong / actual_sum if actual_sum > 0.0 else None


def _ratios(
    predicted: Sequence[Sequence[float]],
    values: Sequence[float],
    origins: Sequence[int],
    floor: float,
) -> list[list[float]]:
    """Return the relative errors of forecasts, one list for each step ahead."""
    return [
        [
            (values[origin + step] - forecast[step]) / max(forecast[step], floor)
            for origin, forecast in zip(origins, predicted, strict=True)
        ]
        for step in range(len(predicted[0]))
    ]


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

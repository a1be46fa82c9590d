"""Forecasts the usual shape of a day, scaled to the level of the last windows.

The shape is the median of the last days, each divided by its mean, and then a moving mean over
half an hour. So a spike on one day, or a quiet weekend, does not change the shape; the seasonal
naive method repeats both. The level is an
exponentially weighted mean of the last windows, each relative to the shape. The decomposition into
a seasonal factor and a level is that of the multiplicative Holt-Winters method (R. J. Hyndman and
G. Athanasopoulos, "Forecasting: Principles and Practice", 3rd ed., section 8.3). All functions are
pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median
from typing import Final

from router.lab.plan.forecasts.method import Fitted, Method
from router.lab.plan.forecasts.seasonal_naive import RECENT, WEIGHTS

_DAYS: Final = 14  # maximum number of days in the shape
_DAYS_MIN: Final = 2
_SMOOTHED: Final = 96  # the moving mean extends to both sides by this part of a day
# If the shape of the last windows is below this share of the day's mean, it does not tell the
# level: a few requests at night would multiply the forecast of the next day.
_QUIET: Final = 0.1


class DayProfile(Method):
    """The method for series whose days have `season` values."""

    name = "day profile"

    def __init__(self, season: int) -> None:
        self.season = season
        self.least = _DAYS_MIN * season + RECENT

    def fit(self, history: Sequence[float]) -> Fitted:
        days: list[list[float]] = []
        end = len(history)
        while end >= self.season and len(days) < _DAYS:
            day = history[end - self.season : end]
            mean = fmean(day)
            if mean > 0.0:
                days.append([value / mean for value in day])
            end -= self.season
        if not days:
            raise ValueError("the series is 0")
        shape = _smoothed([median(values) for values in zip(*days, strict=True)])
        return _FittedProfile(shape, len(history))


class _FittedProfile(Fitted):
    """`shape`: the demand in each window of a day, relative to the day's mean. Its first value is
    that of the window number `origin`.
    """

    def __init__(self, shape: Sequence[float], origin: int) -> None:
        self._shape = shape
        self._origin = origin

    def predict(self, history: Sequence[float], steps: int) -> list[float]:
        end, season = len(history), len(self._shape)
        actual = expected = 0.0
        for back, weight in enumerate(WEIGHTS, start=1):
            actual += weight * history[end - back]
            expected += weight * self._shape[(end - back - self._origin) % season]
        level = actual / expected if expected >= _QUIET else fmean(history[-season:])
        return [level * self._shape[(end + step - self._origin) % season] for step in range(steps)]


def _smoothed(shape: Sequence[float]) -> list[float]:
    """Return the moving mean of a shape, whose last value precedes its first."""
    season = len(shape)
    sides = range(-(season // _SMOOTHED), season // _SMOOTHED + 1)
    return [fmean(shape[(place + side) % season] for side in sides) for place in range(season)]

"""The interface of a forecast method. All methods are pure.

`Backtest`, `Forecast`: a forecast of one series of values, with a band and the errors on held-out
windows.

`SeasonalNaive`: forecasts the value of one season ago, plus the recent difference from the season
before.

Source: the seasonal naive method (R. J. Hyndman and G. Athanasopoulos, "Forecasting: Principles and
Practice", 3rd ed., section 5.2). A correction of the level is added: an exponentially weighted mean
of the last differences. So, with windows of 15 minutes, a week that is busier than the previous
week is noticed within about an hour. All functions are pure.

`DayProfile`: forecasts the usual shape of a day, scaled to the level of the last windows.

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
from dataclasses import dataclass
from statistics import fmean, median
from typing import Final


@dataclass(frozen=True, slots=True)
class Backtest:
    """The error of one method on held-out windows."""

    method: str
    # Weighted absolute percentage error (WAPE): the sum of |forecast - actual| over the sum of the
    # actual values, as a share. The sums are over all steps of all forecasts. None: the error could
    # not be computed.
    error: float | None
    origins: int  # number of forecasts that were compared with actual values
    note: str = ""  # why there is no error


@dataclass(frozen=True, slots=True)
class Forecast:
    """The forecast values of the next windows, and a band around them.

    The unit is that of the series, per window.
    """

    method: str  # "": no method could be used, or there was no demand at all
    tested: tuple[Backtest, ...]  # every method that was compared, the chosen one first
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    # Why the reactive rule decides instead; "": the forecast is used.
    distrust: str = ""

    @property
    def error(self) -> float | None:
        """The error of the chosen method on held-out windows, as a share."""
        return self.tested[0].error if self.method and self.tested else None


class Fitted:
    """A forecast method that was fitted to the beginning of a series."""

    def predict(self, history: Sequence[float], steps: int) -> list[float]:
        """Return the next `steps` values after `history`, each at least 0.

        `history` begins where the fitted series began, and is at least as long as that series.
        """
        raise NotImplementedError


class Method:
    """A forecast method. `least`: the minimum number of values for a fit."""

    name: str
    least: int

    def fit(self, history: Sequence[float]) -> Fitted:
        """Fit the method to at least `least` values.

        Raises MissingExtra, and ValueError if the method cannot be fitted.
        """
        raise NotImplementedError


RECENT: Final = 8  # number of recent values that correct a forecast
_NEWEST: Final = 0.35
_SUM: Final = 1.0 - (1.0 - _NEWEST) ** RECENT
# Weights of the recent values, the newest first. Their sum is 1.
WEIGHTS: Final = tuple(_NEWEST * (1.0 - _NEWEST) ** back / _SUM for back in range(RECENT))


class SeasonalNaive(Method, Fitted):
    """The seasonal naive method, which needs no fit.

    `season`: the number of values in a season; `name`: a name for reports.
    """

    def __init__(self, season: int, name: str) -> None:
        self.name = name
        self.season = season
        self.least = season + RECENT

    def fit(self, history: Sequence[float]) -> Fitted:
        return self

    def predict(self, history: Sequence[float], steps: int) -> list[float]:
        season, end = self.season, len(history)
        correction = weight = 0.0
        for back, share in enumerate(WEIGHTS[: end - season], start=1):
            correction += share * (history[end - back] - history[end - back - season])
            weight += share
        if weight:
            correction /= weight
        return [
            max(0.0, history[end - season + step % season] + correction) for step in range(steps)
        ]


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

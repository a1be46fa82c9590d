"""Forecasts the value of one season ago, plus the recent difference from the season before.

Source: the seasonal naive method (R. J. Hyndman and G. Athanasopoulos, "Forecasting: Principles and
Practice", 3rd ed., section 5.2). A correction of the level is added: an exponentially weighted mean
of the last differences. So, with windows of 15 minutes, a week that is busier than the previous
week is noticed within about an hour. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from router.plan.forecasts.method import Fitted, Method

_RECENT: Final = 8  # number of differences in the correction
# Weight of the newest difference; each older one has 1 - _WEIGHT times the weight of the next.
_WEIGHT: Final = 0.35


class SeasonalNaive(Method, Fitted):
    """The seasonal naive method, which needs no fit.

    `season`: the number of values in a season; `name`: a name for reports.
    """

    def __init__(self, season: int, name: str) -> None:
        self.name = name
        self.season = season
        self.least = season + _RECENT

    def fit(self, history: Sequence[float]) -> Fitted:
        return self

    def predict(self, history: Sequence[float], steps: int) -> list[float]:
        season, end = self.season, len(history)
        correction = weight = 0.0
        for back in range(1, min(_RECENT, end - season) + 1):
            share = _WEIGHT * (1.0 - _WEIGHT) ** (back - 1)
            correction += share * (history[end - back] - history[end - back - season])
            weight += share
        if weight:
            correction /= weight
        return [
            max(0.0, history[end - season + step % season] + correction) for step in range(steps)
        ]

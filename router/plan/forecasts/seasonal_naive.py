"""The value of one season ago, plus the recent difference from the season before. Pure.

Source: the seasonal naive method (R. J. Hyndman and G. Athanasopoulos, "Forecasting: Principles and
Practice", 3rd ed., section 5.2), with a correction of the level: an exponentially weighted mean of
the last differences. So a week that is busier than the last one is noticed within an hour or so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from router.plan.forecasts.method import Fitted, Method

_RECENT: Final = 8  # differences in the correction
_WEIGHT: Final = 0.35  # of the newest difference; older ones fade by 1 - _WEIGHT


class SeasonalNaive(Method, Fitted):
    """`season`: values in a season; `name`: for reports. There is nothing to fit."""

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

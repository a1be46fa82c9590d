"""Forecasts the value of one season ago, plus the recent difference from the season before.

Source: the seasonal naive method (R. J. Hyndman and G. Athanasopoulos, "Forecasting: Principles and
Practice", 3rd ed., section 5.2). A correction of the level is added: an exponentially weighted mean
of the last differences. So, with windows of 15 minutes, a week that is busier than the previous
week is noticed within about an hour. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from router.lab.plan.forecasts.method import Fitted, Method

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

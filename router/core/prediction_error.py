"""The error of predictions, relative to the actual times.

The mean absolute percentage error (MAPE) measures how much predictions differ from actual times.
The mean signed error (bias) measures in which direction they differ. Both are exponential averages
over about the last 50 predictions. The totals since the start are also kept, for benchmarks.

Must never: keep a single prediction.
"""

from __future__ import annotations

from typing import Final

SMOOTHING: Final = 0.02  # Weight of a new error in the averages.
MOST: Final = 10.0  # The largest relative error that is counted; larger errors count as this.
_SHORTEST_S: Final = 1e-6


class PredictionError:
    """The relative error of one kind of predictions. An error of 0.1 is 10 % of the actual time."""

    __slots__ = ("absolute", "absolute_total", "count", "signed", "signed_total")

    def __init__(self) -> None:
        self.count = 0  # Number of predictions that were compared with actual times.
        self.absolute = 0.0  # The mean absolute error.
        self.signed = 0.0  # The mean signed error; above 0: predictions are too long.
        self.absolute_total = 0.0
        self.signed_total = 0.0

    def add(self, predicted_s: float, actual_s: float) -> None:
        """Compare a prediction with the actual time."""
        actual_s = max(actual_s, _SHORTEST_S)
        off = min((predicted_s - actual_s) / actual_s, MOST)
        self.count += 1
        weight = max(SMOOTHING, 1.0 / self.count)
        self.absolute += weight * (abs(off) - self.absolute)
        self.signed += weight * (off - self.signed)
        self.absolute_total += abs(off)
        self.signed_total += off

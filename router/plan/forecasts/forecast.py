"""A forecast of one series, with a band and its backtest. Plain values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backtest:
    """How good the forecasts of one method were on held-out windows."""

    method: str
    # Weighted absolute percentage error: sum of |forecast - actual| over the sum of the actual
    # values, as a share; of all steps and origins. None: it could not be computed.
    error: float | None
    origins: int  # forecasts that were compared
    note: str = ""  # why there is no error


@dataclass(frozen=True, slots=True)
class Forecast:
    """The next windows: expected values and a band, in the units of the series per window."""

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

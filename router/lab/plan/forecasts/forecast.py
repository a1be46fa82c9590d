"""A forecast of one series of values, with a band and the errors on held-out windows."""

from __future__ import annotations

from dataclasses import dataclass


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

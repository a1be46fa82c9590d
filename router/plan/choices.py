"""The names that flags allow. This module imports nothing, so that flags are light to import."""

from __future__ import annotations

from typing import Final

BEST: Final = "best"  # the forecast method with the smallest error
SEASONAL: Final = "seasonal"
ARIMA: Final = "arima"
METHODS: Final = (BEST, SEASONAL, ARIMA)

HEDGEROW: Final = "hedgerow"  # Hedgerow's own counters in Prometheus.

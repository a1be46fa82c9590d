"""The allowed values of some flags. This module imports no other module of the router, so that the
flags can be imported quickly.
"""

from __future__ import annotations

from typing import Final

BEST: Final = "best"  # the forecast method with the smallest error
SEASONAL: Final = "seasonal"
ARIMA: Final = "arima"
METHODS: Final = (BEST, SEASONAL, ARIMA)

HEDGEROW: Final = "hedgerow"  # Hedgerow's own counters in Prometheus.

"""The allowed values of some flags. This module imports no other module of the router, so that the
flags can be imported quickly.
"""

from __future__ import annotations

from typing import Final

ALL: Final = "all"  # the mean of all forecast methods
SEASONAL: Final = "seasonal"
ARIMA: Final = "arima"
METHODS: Final = (ALL, SEASONAL, ARIMA)

HEDGEROW: Final = "hedgerow"  # Hedgerow's own counters in Prometheus.

"""Computes the error of a simulated figure relative to a measured one. All functions are pure.

The error of a share is a difference in percentage points, because a hit rate of 2 % instead of 1 %
is not an error of 100 %.
"""

from __future__ import annotations

from math import isfinite


def error_of(measured: float | None, simulated: float | None, unit: str = "") -> float | None:
    """Return the error of the simulated figure in percent; for the unit "%" in percentage points.

    None: a value is missing or infinite, or the measured value is 0 and the simulated value is not.
    """
    if measured is None or simulated is None or not (isfinite(measured) and isfinite(simulated)):
        return None
    if unit == "%":
        return simulated - measured
    if measured == 0.0:
        return 0.0 if simulated == 0.0 else None
    return 100.0 * (simulated - measured) / measured


def error_text(error: float | None, unit: str) -> str:
    """Format an error as `+3.1 %` or `−0.4 pt`; None is `–`."""
    if error is None:
        return "–"
    written = f"{error:+.1f}".replace("-", "−")
    return f"{written} {'pt' if unit == '%' else '%'}"

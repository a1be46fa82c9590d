"""By how much a simulated figure is wrong. Pure.

Shares are compared by their difference, in points: 2 % of hits instead of 1 % is no error of a
hundred percent.
"""

from __future__ import annotations

from math import isfinite


def error_of(measured: float | None, simulated: float | None, unit: str = "") -> float | None:
    """By how much the simulated figure is wrong: percent, or points where the unit is a share."""
    if measured is None or simulated is None or not (isfinite(measured) and isfinite(simulated)):
        return None
    if unit == "%":
        return simulated - measured
    if measured == 0.0:
        return 0.0 if simulated == 0.0 else None
    return 100.0 * (simulated - measured) / measured


def error_text(error: float | None, unit: str) -> str:
    """`+3.1 %`, `−0.4 pt`; `–` for none."""
    if error is None:
        return "–"
    written = f"{error:+.1f}".replace("-", "−")
    return f"{written} {'pt' if unit == '%' else '%'}"

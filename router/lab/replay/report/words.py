"""Formats times as text. All functions are pure."""

from __future__ import annotations

from math import inf


def seconds(value: float) -> str:
    """Format a time with three significant digits in ms or s: 0.5 ms, 20 ms, 3.07 s, 5,000 s, ∞."""
    if value <= 0.0:
        return "0 s"
    if value == inf:
        return "∞"
    if value < 0.9995:
        return f"{value * 1e3:.3g} ms"
    return f"{value:.3g} s" if value < 999.5 else f"{value:,.0f} s"

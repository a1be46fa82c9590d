"""Times as a person says them. Pure."""

from __future__ import annotations

from math import inf


def seconds(value: float) -> str:
    """Three digits and the unit that suits: 0.5 ms, 20 ms, 3.07 s, 5,000 s, for ever."""
    if value <= 0.0:
        return "0 s"
    if value == inf:
        return "for ever"
    if value < 0.9995:
        return f"{value * 1e3:.3g} ms"
    return f"{value:.3g} s" if value < 999.5 else f"{value:,.0f} s"

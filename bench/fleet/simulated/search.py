"""The highest rate at which something still holds, to a given precision. Pure but for the asking.

Must never: depend on how many processes answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

AT_ONCE = 3  # values that are asked for together, whoever answers them


def highest(
    holds: Callable[[Sequence[float]], Sequence[bool]], low: float, high: float, precision: float
) -> float:
    """The highest value found to hold, within a share `precision` of one that does not.

    `holds` is asked for ascending values; of those, the first that does not hold is believed. The
    bracket grows until `low` holds and `high` does not. Raises ValueError if it does not end.
    """
    for _ in range(20):
        is_low, is_high = holds([low, high])
        if is_low and not is_high:
            break
        low, high = (low, high * 2.0) if is_low else (low / 2.0, high)
    else:
        raise ValueError(f"nothing between {low:g} and {high:g} is where it begins to fail")
    while high > low * (1.0 + precision):
        ratio = (high / low) ** (1.0 / (AT_ONCE + 1))
        values = [low * ratio ** (place + 1) for place in range(AT_ONCE)]
        for value, is_held in zip(values, holds(values), strict=True):
            if not is_held:
                high = value
                break
            low = value
    return low

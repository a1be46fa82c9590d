"""Finds the highest rate at which a condition holds, to a given precision. Pure, except `holds`.

The result must never depend on the number of worker processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

AT_ONCE = 3  # number of values that `holds` gets at once, however many processes evaluate them


def highest(
    holds: Callable[[Sequence[float]], Sequence[bool]], low: float, high: float, precision: float
) -> float:
    """Return the highest value found for which the condition holds.

    A value that is higher by the share `precision` fails.

    `holds` is called with ascending values; all values above the first failure count as failures.
    If necessary, `low` is lowered until it holds, and `high` is raised until it fails. Raises
    ValueError if that takes more than 20 steps.
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

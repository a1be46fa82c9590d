"""Reads numbers from text that another process has sent.

Python's `int` and `float` also accept `1_000`, spaces around a number, a plus sign, digits of other
alphabets, and (only `float`) `nan` and `inf`. `int` raises ValueError for more than 4,300 digits.

Must never: raise, or accept text that an engine or another HTTP implementation would read as
another number.
"""

from __future__ import annotations

import re
from math import inf
from typing import Final

_DECIMAL: Final = re.compile(rb"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def whole_number(text: str, digits: int) -> int | None:
    """Return a text of 1 to `digits` ASCII digits as a number; None for any other text."""
    if len(text) > digits or not text.isascii() or not text.isdigit():
        return None
    return int(text)


def decimal_number(text: bytes) -> float | None:
    """Return a finite number, with an optional fraction and exponent; None for any other text."""
    if _DECIMAL.fullmatch(text) is None:
        return None
    number = float(text)
    return number if -inf < number < inf else None

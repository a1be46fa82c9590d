"""Parsers of flag values that the commands of this package share. All functions are pure.

Each function parses the text of one flag. It raises ArgumentTypeError with a message for the user;
argparse prints the flag's name before the message.
"""

from __future__ import annotations

from argparse import ArgumentTypeError
from math import isfinite


def count(text: str) -> int:
    """Parse an integer of at least 1."""
    return whole(text, text)


def positive(text: str) -> float:
    """Parse a number above 0."""
    found = number(text, text)
    if found <= 0.0:
        raise ArgumentTypeError(f"{text!r} is not above 0")
    return found


def not_negative(text: str) -> float:
    """Parse a number that is 0 or more."""
    found = number(text, text)
    if found < 0.0:
        raise ArgumentTypeError(f"{text!r} is below 0")
    return found


def share(text: str) -> float:
    """Parse a number from 0 to 1."""
    found = number(text, text)
    if not 0.0 <= found <= 1.0:
        raise ArgumentTypeError(f"{text!r} is not between 0 and 1")
    return found


def whole(part: str, text: str) -> int:
    """Parse `part` of the flag's `text` as an integer of at least 1."""
    part = part.strip()
    if not part.isascii() or not part.isdecimal() or len(part) > 18 or int(part) < 1:
        what = repr(part) if part == text else f"{text!r}: {part!r}"
        raise ArgumentTypeError(f"{what} is not a whole number of at least 1")
    return int(part)


def number(part: str, text: str) -> float:
    """Parse `part` of the flag's `text` as a finite number."""
    try:
        found = float(part)
    except ValueError:
        found = float("nan")
    if not isfinite(found):
        what = repr(part) if part == text else f"{text!r}: {part!r}"
        raise ArgumentTypeError(f"{what} is not a number")
    return found

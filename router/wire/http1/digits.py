"""Reads numbers from bytes, digit by digit. Compiled, this is faster than `int(data[a:b])`."""

from __future__ import annotations


def number_at(data: bytes, at: int, most: int) -> tuple[int, int]:
    """Return the decimal number that begins at the index `at`, of at most `most` digits, and the
    index after it.

    The number is -1 if there is no digit, or if there are more than `most` digits.
    """
    start = at
    last = start + most
    end = min(len(data), last + 1)
    value = 0
    while at < end:
        digit = data[at] - 48
        if not 0 <= digit <= 9:
            break
        value = value * 10 + digit
        at += 1
    return (value if start < at <= last else -1), at

"""Parses the Retry-After header field (RFC 9110 section 10.2.3) into seconds from now.

The field's value is a number of seconds or an HTTP date. The function is pure: the time of the wall
clock is an argument. Must never: return more than `LONGEST_S` seconds. A failing proxy or engine
may send any value, and it must not keep a replica out of use for long.
"""

from __future__ import annotations

from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

from router.core.numbers import whole_number

LONGEST_S: Final = 60.0  # a longer Retry-After counts as this many seconds
_LONGEST: Final = 64  # maximum bytes of a value; no date is longer


def seconds_of(value: bytes, wall_s: float) -> float | None:
    """Return the seconds to wait, from 0 to LONGEST_S; None if `value` is invalid.

    `wall_s`: the present time in seconds since 1970.
    """
    if len(value) > _LONGEST:
        return None
    text = value.decode("ascii", "replace").strip()
    seconds = whole_number(text, _LONGEST)
    if seconds is not None:
        return min(float(seconds), LONGEST_S)
    try:
        when = parsedate_to_datetime(text)
    except (ValueError, OverflowError, TypeError, IndexError):
        return None
    if when.tzinfo is None:  # a date with the unknown zone "-0000"; dates in HTTP are in GMT
        when = when.replace(tzinfo=UTC)
    return max(0.0, min(when.timestamp() - wall_s, LONGEST_S))

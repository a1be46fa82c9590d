"""Parses Retry-After into seconds from now (RFC 9110 section 10.2.3): seconds or an HTTP date.

The functions are pure: the time of the wall clock is passed in. Must never: accept a time that
would keep a replica out of use for long, because a failing proxy or engine may send any value.
"""

from __future__ import annotations

from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

from router.core.numbers import whole_number

LONGEST_S: Final = 60.0  # maximum seconds of any Retry-After that are used
_LONGEST: Final = 64  # maximum bytes of a value; no date is longer


def seconds_of(value: bytes, wall_s: float) -> float | None:
    """Return the seconds to wait, from 0 to LONGEST_S; None for a value that is neither seconds nor
    a date.

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
    if when.tzinfo is None:  # "-0000": the zone is unknown, and HTTP's dates are all in GMT
        when = when.replace(tzinfo=UTC)
    return max(0.0, min(when.timestamp() - wall_s, LONGEST_S))

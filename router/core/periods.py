"""The days, weeks and months of the calendar, as whole numbers.

A day is the number of days since 1970-01-01. A week begins on Monday (ISO 8601); its number counts
from the week of 1970-01-01. A month is the year times 12, plus the number of the month from 0.

The functions are pure: the time is passed in, in seconds since 1970, or as local time
(`time_zone.py`). They accept any finite time, also a time before 1970 from a wrong clock.
"""

from __future__ import annotations

import re
from math import floor
from typing import Final

DAY_S: Final = 86400.0
# The lengths of periods, in ascending order; they are indexes of `NAMES`.
DAY: Final = 0
WEEK: Final = 1
MONTH: Final = 2
NAMES: Final = ("day", "week", "month")
_TO_MONDAY: Final = 3  # days from Monday to 1970-01-01, a Thursday
# Days from 0000-03-01 to 1970-01-01. Years that begin in March have the leap day at their end.
_EPOCH: Final = 719468
_ERA: Final = 146097  # days in 400 years
_DATE: Final = re.compile(r"(\d{4})-(\d{2})-(\d{2})\Z")


def day_of(wall: float) -> int:
    """Return the day of a wall-clock time."""
    return floor(wall / DAY_S)


def number_of(period: int, day: int) -> int:
    """Return the number of the day, week or month to which a day belongs. `period`: DAY, WEEK or
    MONTH."""
    if period == DAY:
        return day
    if period == WEEK:
        return (day + _TO_MONDAY) // 7
    year, month, _ = _civil(day)
    return year * 12 + month - 1


def first_day_of(period: int, number: int) -> int:
    """Return the first day of the day, week or month with this number."""
    if period == DAY:
        return number
    if period == WEEK:
        return number * 7 - _TO_MONDAY
    return _day(number // 12, number % 12 + 1, 1)


def seconds_to_next(period: int, wall: float) -> float:
    """Return the seconds until the next day, week or month begins."""
    return first_day_of(period, number_of(period, day_of(wall)) + 1) * DAY_S - wall


def date_of(day: int) -> str:
    """Return a day as a date, such as `2026-11-30`."""
    year, month, number = _civil(day)
    return f"{year:04d}-{month:02d}-{number:02d}"


def parse_date(text: str) -> int:
    """Return the day of a date such as `2026-11-30`. Raises ValueError."""
    found = _DATE.match(text)
    if found is not None:
        year, month, number = (int(part) for part in found.groups())
        if 1 <= month <= 12:
            day = _day(year, month, number)
            if _civil(day) == (year, month, number):
                return day
    raise ValueError(f"{text!r} is not a date such as 2026-11-30")


def _civil(day: int) -> tuple[int, int, int]:
    """Return (year, month, day of the month).

    The algorithm is `civil_from_days` of Howard Hinnant, "chrono-Compatible Low-Level Date
    Algorithms".
    """
    day += _EPOCH
    era = day // _ERA
    of_era = day - era * _ERA
    year = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    march = (5 * of_year + 2) // 153  # the month, from 0 for March
    number = of_year - (153 * march + 2) // 5 + 1
    month = march + 3 if march < 10 else march - 9
    return year + era * 400 + (1 if month <= 2 else 0), month, number


def _day(year: int, month: int, number: int) -> int:
    """Return the day of a date: `days_from_civil` of the same source."""
    if month <= 2:
        year -= 1
    era = year // 400
    of_era = year - era * 400
    march = month - 3 if month > 2 else month + 9
    of_year = (153 * march + 2) // 5 + number - 1
    return era * _ERA + of_era * 365 + of_era // 4 - of_era // 100 + of_year - _EPOCH

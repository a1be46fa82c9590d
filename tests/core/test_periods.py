"""Days and months in UTC, compared with the standard library's calendar."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.periods import (
    date_of,
    day_of,
    first_day_of,
    month_of,
    parse_date,
    seconds_to_next_day,
    seconds_to_next_month,
)

EPOCH = date(1970, 1, 1)


@given(st.dates(date(1600, 1, 1), date(3000, 12, 31)))
def test_every_day_is_that_of_the_calendar(day: date) -> None:
    number = (day - EPOCH).days
    assert date_of(number) == day.isoformat()
    assert parse_date(day.isoformat()) == number
    assert month_of(number) == day.year * 12 + day.month - 1
    assert first_day_of(month_of(number)) == (day.replace(day=1) - EPOCH).days


@given(st.datetimes(datetime(1990, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)))
def test_the_next_day_and_the_next_month_begin_at_midnight(at: datetime) -> None:
    wall = at.timestamp()
    midnight = at.replace(hour=0, minute=0, second=0, microsecond=0)
    tomorrow = midnight + timedelta(days=1)
    following = (midnight.replace(day=28) + timedelta(days=4)).replace(day=1)
    assert wall + seconds_to_next_day(wall) == pytest.approx(tomorrow.timestamp())
    assert wall + seconds_to_next_month(wall) == pytest.approx(following.timestamp())
    assert day_of(wall) == (at.date() - EPOCH).days


def test_a_period_is_never_over_at_its_own_beginning() -> None:
    assert seconds_to_next_day(86400.0) == 86400.0
    assert seconds_to_next_month(0.0) == 31 * 86400.0


@pytest.mark.parametrize("text", ["2026-02-29", "2026-13-01", "2026-1-1", "today", "2026-11-30x"])
def test_what_is_not_a_date(text: str) -> None:
    with pytest.raises(ValueError, match="is not a date such as 2026-11-30"):
        parse_date(text)

"""Days, weeks, months and local times, compared with the standard library's calendar."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, strategies as st

from router.core.periods import (
    DAY,
    MONTH,
    WEEK,
    date_of,
    day_of,
    first_day_of,
    number_of,
    parse_date,
    seconds_to_next,
)
from router.core.time_zone import TimeZone

EPOCH = date(1970, 1, 1)


@given(st.dates(date(1600, 1, 1), date(3000, 12, 31)))
def test_every_day_is_that_of_the_calendar(day: date) -> None:
    number = (day - EPOCH).days
    assert date_of(number) == day.isoformat()
    assert parse_date(day.isoformat()) == number
    assert number_of(DAY, number) == first_day_of(DAY, number) == number
    assert number_of(MONTH, number) == day.year * 12 + day.month - 1
    assert first_day_of(MONTH, number_of(MONTH, number)) == (day.replace(day=1) - EPOCH).days
    monday = day - timedelta(days=day.weekday())
    assert first_day_of(WEEK, number_of(WEEK, number)) == (monday - EPOCH).days


@given(st.datetimes(datetime(1990, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)))
def test_the_next_period_begins_at_midnight(at: datetime) -> None:
    wall = at.timestamp()
    midnight = at.replace(hour=0, minute=0, second=0, microsecond=0)
    tomorrow = midnight + timedelta(days=1)
    following = (midnight.replace(day=28) + timedelta(days=4)).replace(day=1)
    monday = midnight + timedelta(days=7 - at.weekday())
    for period, begin in ((DAY, tomorrow), (WEEK, monday), (MONTH, following)):
        assert wall + seconds_to_next(period, wall) == pytest.approx(begin.timestamp())
    assert day_of(wall) == (at.date() - EPOCH).days


@pytest.mark.parametrize("text", ["2026-02-29", "2026-13-01", "2026-1-1", "today", "2026-11-30x"])
def test_what_is_not_a_date(text: str) -> None:
    with pytest.raises(ValueError, match="is not a date such as 2026-11-30"):
        parse_date(text)


ZONES = ("UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "Pacific/Apia")


@given(
    st.datetimes(datetime(1990, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),
    st.sampled_from(ZONES),
)
def test_local_time_is_that_of_the_standard_library(at: datetime, name: str) -> None:
    local = at.astimezone(ZoneInfo(name)).replace(tzinfo=UTC)
    assert TimeZone(name).local(at.timestamp()) == pytest.approx(local.timestamp(), abs=1e-3)


def test_the_offset_changes_in_time() -> None:
    zone = TimeZone("Europe/Berlin")
    change = datetime(2026, 10, 25, 1, 0, tzinfo=UTC).timestamp()
    offsets = [zone.offset_s(change + step) for step in (-1.0, 0.0, -1.0, 3600.0)]
    assert offsets == [7200.0, 3600.0, 7200.0, 3600.0]


@pytest.mark.parametrize("wall", [1e18, -1e18])
def test_an_impossible_time_has_no_offset(wall: float) -> None:
    assert TimeZone("Europe/Berlin").local(wall) == wall

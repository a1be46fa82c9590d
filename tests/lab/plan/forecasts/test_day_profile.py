"""The forecast by the shape of a day and the present level."""

import pytest

from router.lab.plan.forecasts.method import DayProfile, SeasonalNaive
from tests.lab.plan.forecasts.curves import DAY, daily

METHOD = DayProfile(DAY)


def predicted(values: list[float], steps: int, season: int = DAY) -> list[float]:
    return DayProfile(season).fit(values).predict(values, steps)


def test_a_known_sine_is_continued_exactly() -> None:
    values = daily(8 * DAY + 30)
    # The shape begins wherever the history ends.
    for end in (4 * DAY, 4 * DAY + 7):
        assert predicted(values[:end], DAY + 3) == pytest.approx(values[end : end + DAY + 3])


def test_newer_values_than_those_of_the_fit_set_the_level() -> None:
    values = daily(8 * DAY)
    fitted = METHOD.fit(values[: 4 * DAY])
    busy = values[: 4 * DAY] + [1.5 * value for value in values[4 * DAY : 4 * DAY + 9]]
    expected = [1.5 * value for value in values[4 * DAY + 9 : 4 * DAY + 13]]
    assert fitted.predict(busy, 4) == pytest.approx(expected)


def test_a_spike_is_not_repeated_on_the_next_day() -> None:
    values = daily(6 * DAY)
    spiked = list(values)
    spiked[5 * DAY + 5] *= 10.0
    assert predicted(spiked, 10) == pytest.approx(values[:10])
    naive = SeasonalNaive(DAY, "day").predict(spiked, 10)
    assert naive[5] > 5.0 * values[5]


def test_the_shape_is_smoothed_over_half_an_hour() -> None:
    season = 288  # windows of five minutes
    day = [100.0] * season
    day[50] = 800.0  # every day
    found = predicted(day * 4, season, season)
    assert found[46:55] == pytest.approx([100.0, *[200.0] * 7, 100.0])


def test_a_series_without_demand_cannot_be_fitted() -> None:
    with pytest.raises(ValueError, match="the series is 0"):
        METHOD.fit([0.0] * 4 * DAY)

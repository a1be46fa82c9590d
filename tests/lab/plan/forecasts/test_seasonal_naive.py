"""The seasonal naive forecast."""

import pytest

from router.lab.plan.forecasts.method import SeasonalNaive
from tests.lab.plan.forecasts.curves import DAY, daily

METHOD = SeasonalNaive(DAY, "day")


def test_a_known_sine_is_continued_exactly() -> None:
    values = daily(4 * DAY)
    predicted = METHOD.fit(values[: 3 * DAY]).predict(values[: 3 * DAY], DAY)
    assert predicted == pytest.approx(values[3 * DAY :])


def test_a_new_level_is_followed() -> None:
    values = daily(3 * DAY)
    values += [value + 30.0 for value in daily(3 * DAY)[: DAY // 2]]
    predicted = METHOD.predict(values, 4)
    start = DAY // 2
    expected = [value + 30.0 for value in daily(4 * DAY)[start : start + 4]]
    assert predicted == pytest.approx(expected)

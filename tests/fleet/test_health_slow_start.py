"""A replica that has started, returned or lost a race gets its full share gradually."""

from random import Random

import pytest
from hypothesis import given, strategies as st

from router.config.model import Health as Rules
from router.fleet.health import COLDEST, LAG_S, Health

RULES = Rules(rise=2, fall=1, eject_after=1, eject_base_s=10.0, slow_start_s=30.0)


def make() -> Health:
    return Health(RULES)


def test_one_that_comes_up_begins_slowly() -> None:
    health = make()
    health.probed(False, 0.0)
    health.probed(True, 50.0)
    assert health.probed(True, 100.0)
    assert [health.factor(100.0 + s) for s in (0, 1.5, 3, 6, 15, 29.7, 30, 1e9)] == pytest.approx(
        [0.1, 0.1, 0.1, 0.2, 0.5, 0.99, 1, 1]
    )


def test_one_that_stays_up_is_not_cooled_by_its_probes() -> None:
    health = make()
    health.probed(False, 0.0)
    for now in range(100, 200):
        health.probed(True, float(now))
    assert health.factor(200.0) == 1.0


def test_one_that_comes_back_from_an_ejection_begins_slowly() -> None:
    health = make()
    health.failed(0.0, Random(0), True)
    until = health.ejected_until
    assert health.reopened(until)
    assert health.factor(until) == COLDEST
    # The share grows from the end of the successful trial, not from its earliest start.
    assert health.succeeded(until + 100)
    assert health.factor(until + 100) == COLDEST
    assert health.factor(until + 115) == pytest.approx(0.5)


def test_it_can_be_switched_off() -> None:
    health = Health(Rules(slow_start_s=0.0))
    health.begins_slowly(100.0)
    for now in (99.0, 100.0, 101.0):
        assert health.factor(now) == 1.0


@given(st.floats(-1e6, 1e6), st.floats(-1e3, 1e3), st.floats(0, 1e3))
def test_the_share_only_grows_and_has_bounds(since: float, elapsed: float, more: float) -> None:
    health = make()
    health.begins_slowly(since)
    earlier, later = health.factor(since + elapsed), health.factor(since + elapsed + more)
    assert COLDEST <= earlier <= later <= 1.0


def test_one_that_lost_a_race_gets_less_for_a_while() -> None:
    health = make()
    health.lags(100.0)
    shares = [health.factor(100.0 + share * LAG_S) for share in (0.0, 0.05, 0.5, 1.0, 9.0)]
    assert shares == pytest.approx([COLDEST, COLDEST, 0.5, 1.0, 1.0])
    assert health.breaker(100.0) == "closed"


def test_the_lower_share_counts() -> None:
    health = make()
    health.begins_slowly(100.0)
    health.lags(100.0 + 15.0)
    assert health.factor(100.0 + 15.0) == COLDEST
    assert health.factor(100.0 + 29.0) == pytest.approx(14.0 / LAG_S)
    health.begins_slowly(100.0 + 15.0)
    assert health.factor(100.0 + 27.0) == pytest.approx(12.0 / 30.0)

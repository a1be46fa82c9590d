"""Distances between regions: configured, measured, unknown."""

from math import inf

import pytest

from router.fleet.regions.distances import Distances


def distances(own: str = "eu", **measured: float) -> Distances:
    found = Distances()
    found.adopt(own, {("eu", "us"): 0.08, ("asia", "us"): 0.15})
    found.measured(measured)
    return found


def test_a_configured_distance_holds_in_both_directions_and_goes_first() -> None:
    known = distances(us=0.5)
    assert known.between("eu", "us") == known.between("us", "eu") == 0.08
    assert known.between("us", "asia") == 0.15
    assert known.knows("asia") and not known.knows("africa")


def test_a_measured_distance_holds_from_the_router_to_a_region_and_back() -> None:
    known = distances(africa=0.12)
    assert known.between("eu", "africa") == known.between("africa", "eu") == 0.12


def test_between_two_other_regions_the_way_goes_through_the_router() -> None:
    assert distances(africa=0.12).between("us", "africa") == 0.2
    assert distances(africa=0.12, mars=0.5).between("africa", "mars") == 0.62


@pytest.mark.parametrize("measured", [{}, {"africa": 0.3}])
def test_the_region_of_the_router_is_nearer_than_regions_behind_it(
    measured: dict[str, float],
) -> None:
    """The distance from the client to the router may be unknown or long."""
    known = distances(asia=0.1, **measured)
    assert known.between("africa", "eu") < known.between("africa", "asia")


def test_a_small_change_of_a_measurement_changes_no_distance() -> None:
    known = distances(africa=0.100)
    assert not known.measured({"africa": 0.115})
    assert known.between("eu", "africa") == 0.100
    assert known.measured({"africa": 0.125})
    assert known.between("eu", "africa") == 0.125


def test_differences_below_a_millisecond_are_noise() -> None:
    known = distances(africa=0.0002)
    assert not known.measured({"africa": 0.0011})
    assert known.measured({"africa": 0.0013})


def test_the_measurement_of_a_region_without_replicas_is_forgotten() -> None:
    known = distances(africa=0.1)
    assert known.measured({})
    assert known.between("eu", "africa") == inf


def test_another_own_region_forgets_the_measurements() -> None:
    known = distances(africa=0.1)
    known.adopt("us", {})
    assert known.between("us", "africa") == inf

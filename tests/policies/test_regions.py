"""Allowed regions, and the names of queue lanes that contain them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from policies.regions import AllowedRegions, lane_of, read_lane

NAMES = st.lists(st.from_regex(r"[A-Za-z0-9._-]{1,8}", fullmatch=True), min_size=1, max_size=4)


def test_only_the_named_regions_are_allowed() -> None:
    allowed = AllowedRegions(["eu", "asia"])
    assert allowed.allows("eu") and allowed.allows("asia")
    assert not allowed.allows("us")
    assert not allowed.allows("")
    assert str(allowed) == "asia, eu"


def test_equal_sets_have_one_lane() -> None:
    one, other = AllowedRegions(["eu", "us"]), AllowedRegions(["us", "eu", "us"])
    assert one.lane == other.lane
    assert one.lane != AllowedRegions(["eu"]).lane


@given(st.text(max_size=20), st.none() | NAMES)
def test_a_lane_is_read_as_it_was_named(model: str, names: list[str] | None) -> None:
    allowed = None if names is None else AllowedRegions(names)
    found, regions = read_lane(lane_of(model, allowed))
    if allowed is not None:
        assert regions is not None
        assert (found, regions.names) == (model, allowed.names)


@given(st.text(alphabet="m\x01\x02us", max_size=20), NAMES)
def test_no_name_of_a_model_adds_a_region(model: str, names: list[str]) -> None:
    _, regions = read_lane(lane_of(model, AllowedRegions(names)))
    assert regions is not None
    assert regions.names == frozenset(names)

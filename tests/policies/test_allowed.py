"""Allowed regions, and the names of queue lanes that contain them."""

from hypothesis import given, strategies as st

from policies.allowed import Allowed, lane_of, read_lane, with_context

NAMES = st.lists(st.from_regex(r"[A-Za-z0-9._-]{1,8}", fullmatch=True), min_size=1, max_size=4)


def test_only_the_named_regions_are_allowed() -> None:
    allowed = Allowed(["eu", "asia"])
    assert allowed.allows("eu") and allowed.allows("asia")
    assert not allowed.allows("us")
    assert not allowed.allows("")
    assert str(allowed) == "asia, eu"


@given(st.text(max_size=20), st.none() | NAMES, st.integers(0, 10**9))
def test_a_lane_is_read_as_it_was_named(model: str, names: list[str] | None, context: int) -> None:
    allowed = Allowed(names, context)
    assert read_lane(lane_of(model, allowed)) == (model, allowed)
    found = read_lane(lane_of(model, allowed))[1]
    assert found is not None
    assert found.regions == (None if names is None else frozenset(names))
    assert found.context == context
    assert read_lane("m") == ("m", None)


def test_the_context_is_changed_and_the_regions_stay() -> None:
    eu = Allowed(["eu"])
    limited = with_context(eu, 4096)
    assert limited == Allowed(["eu"], 4096) != eu
    assert with_context(limited, 4096) is limited
    assert with_context(limited, 0) == eu
    assert with_context(None, 4096) == Allowed(None, 4096)
    assert with_context(Allowed(None, 4096), 0) is None
    assert with_context(None, 0) is None
    assert Allowed(None, 4096).allows("anywhere")
    assert Allowed([""]) != Allowed(None) != Allowed([])


@given(st.text(alphabet="m\x01\x02us", max_size=20), NAMES)
def test_no_name_of_a_model_adds_a_region(model: str, names: list[str]) -> None:
    _, regions = read_lane(lane_of(model, Allowed(names)))
    assert regions is not None
    assert regions.regions == frozenset(names)

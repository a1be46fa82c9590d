import pytest

from policies.contract import Candidate, make_policy
from tests.policies.helpers import PROMPT, loaded, picks


def test_the_deepest_holder_is_taken() -> None:
    candidates = loaded(3, 3, 3)
    held = {candidates[0]: 4, candidates[1]: 9}
    assert picks(make_policy("prefix_affinity"), candidates, PROMPT, held) == {"b"}


@pytest.mark.parametrize(
    ("loads", "expected"),
    [
        ((5, 0, 0, 0), {"a"}),  # mean 1.25: above it by less than 4
        ((6, 0, 0, 0), {"b", "c", "d"}),  # mean 1.5: above it by more than 4, and 4 times it
        ((45, 39, 39, 39), {"a"}),  # mean 40.5: above it by more than 4, by less than a quarter
        ((90, 40, 39, 40), {"c"}),
    ],
)
def test_a_holder_is_left_when_both_margins_are_exceeded(
    loads: tuple[int, ...], expected: set[str]
) -> None:
    candidates = loaded(*loads)
    policy = make_policy("prefix_affinity", {"relative": 1.25, "absolute": 4})
    assert picks(policy, candidates, PROMPT, {candidates[0]: 10}) == expected


def test_the_bound_goes_by_weight() -> None:
    light, heavy = Candidate("light", weight=0.5, load=8), Candidate("heavy", weight=1.5, load=8)
    policy = make_policy("prefix_affinity")
    assert picks(policy, [light, heavy], PROMPT, {light: 9, heavy: 8}) == {"heavy"}
    # Only the ratio of weights matters.
    light.weight, heavy.weight = 0.05, 0.15
    assert picks(policy, [light, heavy], PROMPT, {light: 9, heavy: 8}) == {"heavy"}
    light.load = 2
    assert picks(policy, [light, heavy], PROMPT, {light: 9, heavy: 8}) == {"light"}

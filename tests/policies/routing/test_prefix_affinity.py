from __future__ import annotations

import pytest

from policies.contract import Candidate, PolicyConfigError, RequestView, make_policy
from tests.policies.helpers import PROMPT, burst, context, fleet, loaded, picks


def test_the_deepest_holder_is_taken() -> None:
    candidates = loaded(3, 3, 3)
    held = {candidates[0]: 4, candidates[1]: 9}
    assert picks(make_policy("prefix_affinity"), candidates, PROMPT, held) == {"b"}


def test_of_equally_deep_holders_the_least_loaded() -> None:
    candidates = loaded(3, 2, 0, 0)
    held = {candidates[0]: 9, candidates[1]: 9}
    assert picks(make_policy("prefix_affinity"), candidates, PROMPT, held) == {"b"}


@pytest.mark.parametrize(("blocks", "expected"), [(2, {"b", "c"}), (3, {"a"}), (4, {"a"})])
def test_the_threshold_itself_is_a_match(blocks: int, expected: set[str]) -> None:
    """30 % of 10 blocks are 3."""
    candidates = loaded(1, 0, 0)
    policy = make_policy("prefix_affinity", {"min_match": 0.3})
    assert picks(policy, candidates, PROMPT, {candidates[0]: blocks}) == expected


def test_without_a_threshold_a_miss_is_still_a_miss() -> None:
    candidates = loaded(1, 0)
    policy = make_policy("prefix_affinity", {"min_match": 0})
    assert picks(policy, candidates, PROMPT) == {"b"}
    assert picks(policy, candidates, RequestView(), {candidates[0]: 0}) == {"b"}


def test_a_miss_goes_to_the_least_loaded_and_ties_are_drawn() -> None:
    assert picks(make_policy("prefix_affinity"), loaded(1, 0, 0), PROMPT) == {"b", "c"}


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


def test_one_overloaded_holder_does_not_end_the_affinity_of_the_others() -> None:
    candidates = loaded(60, 12, 9, 9)
    held = {candidates[0]: 10, candidates[1]: 8}
    assert picks(make_policy("prefix_affinity"), candidates, PROMPT, held) == {"b"}


def test_one_empty_newcomer_does_not_end_the_affinity_of_the_others() -> None:
    """Compared with the least load, every holder of a busy fleet would look overloaded."""
    candidates = loaded(20, 20, 20, 20, 20, 20, 20, 0)
    assert picks(make_policy("prefix_affinity"), candidates, PROMPT, {candidates[3]: 9}) == {"d"}


def test_the_bound_goes_by_weight() -> None:
    light, heavy = Candidate("light", weight=0.5, load=8), Candidate("heavy", weight=1.5, load=8)
    policy = make_policy("prefix_affinity")
    assert picks(policy, [light, heavy], PROMPT, {light: 9, heavy: 8}) == {"heavy"}
    # Only the ratio of weights matters.
    light.weight, heavy.weight = 0.05, 0.15
    assert picks(policy, [light, heavy], PROMPT, {light: 9, heavy: 8}) == {"heavy"}
    light.load = 2
    assert picks(policy, [light, heavy], PROMPT, {light: 9, heavy: 8}) == {"light"}


def test_what_most_hold_is_no_reason_to_choose_among_them() -> None:
    """The replica without the prefix has just restarted, and must get requests again."""
    candidates = loaded(2, 2, 2, 0)
    held = dict.fromkeys(candidates[:3], 9)
    assert picks(make_policy("prefix_affinity"), candidates, PROMPT, held) == {"d"}
    held[candidates[1]] = 10  # one replica holds more, because the conversation runs there
    assert picks(make_policy("prefix_affinity"), candidates, PROMPT, held) == {"b"}
    half = dict.fromkeys(candidates[:2], 9)
    assert picks(make_policy("prefix_affinity"), candidates, PROMPT, half) == {"a", "b"}


def test_holders_that_are_not_candidates_are_ignored() -> None:
    stranger = Candidate("stranger")
    assert picks(make_policy("prefix_affinity"), loaded(1, 0), PROMPT, {stranger: 10}) == {"b"}


def test_a_burst_of_one_prompt_spreads_once_the_bound_is_hit() -> None:
    candidates = fleet(*[1.0] * 8)
    ctx = context(held={candidates[0]: 10})
    picked = burst(make_policy("prefix_affinity"), candidates, 160, ctx, PROMPT)
    # The mean is 20: the holder may have 1.25 times that, and one that was sent at the bound.
    assert 20 < picked["a"] <= 26
    assert len(picked) == 8


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("min_match", -0.1),
        ("min_match", 1.1),
        ("relative", 0.9),
        ("relative", float("inf")),
        ("relative", float("nan")),
        ("absolute", -1),
        ("absolute", float("nan")),
    ],
)
def test_options_out_of_range_are_refused(option: str, value: float) -> None:
    with pytest.raises(PolicyConfigError) as caught:
        make_policy("prefix_affinity", {option: value})
    assert caught.value.option == option

from __future__ import annotations

import pytest

import bench.rivals  # noqa: F401  (registers the policies)
from policies.contract import PolicyConfigError, make_policy
from tests.policies.helpers import PROMPT, context, fleet, loaded, picks, trickle


def test_pending_prefill_and_the_overlap_are_weighed_token_for_token() -> None:
    candidates = loaded(0, 0)
    held = {candidates[0]: 5}
    candidates[0].pending_tokens = 5 * 128 - 1
    assert picks(make_policy("linear_cost"), candidates, PROMPT, held) == {"a"}
    candidates[0].pending_tokens = 5 * 128 + 1
    assert picks(make_policy("linear_cost"), candidates, PROMPT, held) == {"b"}


def test_the_overlap_spares_no_more_than_the_prompt() -> None:
    candidates = loaded(0, 0)
    candidates[0].pending_tokens = 1301
    assert picks(make_policy("linear_cost"), candidates, PROMPT, {candidates[0]: 50}) == {"b"}


def test_a_batch_counts_with_its_usual_context() -> None:
    policy, candidates = make_policy("linear_cost"), loaded(1, 0)
    held = {candidates[0]: 9}
    # One running request costs as much as a whole prompt of this length ...
    assert picks(policy, candidates, PROMPT, held) == {"b"}
    # ... until answers have shown the size of a usual request.
    ctx = context()
    short = type(PROMPT)(prompt_tokens=90)
    policy.on_finish(PROMPT, candidates[0], 500, ctx)
    assert picks(policy, candidates, PROMPT, held) == {"b"}
    for _ in range(300):
        policy.on_finish(short, candidates[0], 10, ctx)
    assert picks(policy, candidates, PROMPT, held) == {"a"}
    # A failed request carries no information.
    for _ in range(300):
        policy.on_finish(PROMPT, candidates[0], None, ctx)
    assert picks(policy, candidates, PROMPT, held) == {"a"}


def test_a_full_cache_counts_where_it_is_known() -> None:
    candidates = loaded(2, 2, 2)
    candidates[0].kv_usage, candidates[0].kv_tokens = 0.9, 100_000
    candidates[1].kv_usage = 0.9  # unknown for the others
    assert picks(make_policy("linear_cost"), candidates, PROMPT) == {"b", "c"}


def test_the_scale_and_the_credit_turn_the_two_halves_up_and_down() -> None:
    candidates = loaded(0, 1)
    candidates[0].pending_tokens = 2000
    assert picks(make_policy("linear_cost"), candidates, PROMPT) == {"b"}
    options = {"prefill_load_scale": 0.1}
    assert picks(make_policy("linear_cost", options), candidates, PROMPT) == {"a"}
    candidates = loaded(0, 0)
    blind = make_policy("linear_cost", {"overlap_credit": 0})
    assert picks(blind, candidates, PROMPT, {candidates[0]: 9}) == {"a", "b"}


def test_temperature_draws_the_cheaper_more_often() -> None:
    candidates = loaded(0, 1, 2)
    warm = trickle(make_policy("linear_cost", {"temperature": 1.0}), candidates, 3000, context())
    assert warm["a"] > warm["b"] > warm["c"] > 300
    cool = trickle(make_policy("linear_cost", {"temperature": 0.1}), candidates, 3000, context())
    assert cool["a"] > 2900


def test_temperature_keeps_the_weights_of_equals() -> None:
    policy = make_policy("linear_cost", {"temperature": 1.0})
    picked = trickle(policy, fleet(1, 3), 4000, context())
    assert picked["b"] / 4000 == pytest.approx(0.75, abs=0.03)
    candidates = fleet(1, 3, 1)
    candidates[2].load = 5
    picked = trickle(policy, candidates, 4000, context())
    assert picked["b"] / (picked["a"] + picked["b"]) == pytest.approx(0.75, abs=0.03)
    assert picked["c"] > 100


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("prefill_load_scale", -1),
        ("overlap_credit", 1.5),
        ("temperature", -0.1),
        ("temperature", float("inf")),
        ("temperature", float("nan")),
    ],
)
def test_options_out_of_range_are_refused(option: str, value: float) -> None:
    with pytest.raises(PolicyConfigError) as caught:
        make_policy("linear_cost", {option: value})
    assert caught.value.option == option

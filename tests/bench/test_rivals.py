"""The policies that the benches compare with: what each of them prefers."""

from collections.abc import Sequence

import pytest

import bench.rivals  # noqa: F401  (registers the policies)
from policies.contract import Candidate, Context, PolicyConfigError, RoutingPolicy, make_policy
from tests.policies.helpers import PROMPT, VIEW, burst, context, fleet, loaded, picks, trickle


def using(*usages: float | None, load: int = 4) -> list[Candidate]:
    """Candidates with these shares of their KV cache in use."""
    return [
        Candidate(name, inflight=load, kv_usage=usage, kv_tokens=100_000)
        for name, usage in zip("abcd", usages, strict=False)
    ]


# -- kv_occupancy ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usages", "loads", "taken"),
    [
        ((0.7, 0.2, 0.5), (4, 4, 4), "b"),
        # In full caches the load decides. A quotient would prefer the larger batch.
        ((1.0, 1.0), (30, 3), "b"),
        # An unknown usage counts like the mean of the others.
        ((0.2, None, 0.8), (4, 4, 4), "a"),
        ((None, 0.8), (4, 4), "ab"),
        ((None, None, None), (3, 1, 2), "b"),
    ],
)
def test_kv_occupancy_takes_the_emptiest_cache(
    usages: Sequence[float | None], loads: Sequence[int], taken: str
) -> None:
    candidates = using(*usages)
    for candidate, load in zip(candidates, loads, strict=True):
        candidate.inflight = candidate.load = load
    assert picks(make_policy("kv_occupancy"), candidates) == set(taken)


def test_kv_occupancy_spreads_a_burst_by_the_free_room() -> None:
    """Usage does not change between two polls. A cache twice as free carries twice the load."""
    picked = burst(make_policy("kv_occupancy"), using(0.2, 0.6, load=0), 300, context())
    assert picked["a"] / 300 == pytest.approx(2 / 3, abs=0.01)


# -- least_inflight -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inflight", "weights", "expected"),
    [
        ((3, 1, 2), (1, 1, 1), "b"),
        ((3, 4, 4), (1, 2, 1), "b"),  # 3, 2, 4 for each unit of weight
        ((0, 1, 1), (0.01, 9, 9), "a"),
    ],
)
def test_least_inflight_takes_the_least_for_its_weight(
    inflight: tuple[int, ...], weights: tuple[float, ...], expected: str
) -> None:
    candidates = fleet(*weights)
    for candidate, count in zip(candidates, inflight, strict=True):
        candidate.inflight = count
    for seed in range(10):
        pick = make_policy("least_inflight").pick(VIEW, candidates, context(seed))
        assert pick.candidate.id == expected


def test_least_inflight_draws_ties_by_weight() -> None:
    picked = trickle(make_policy("least_inflight"), fleet(1, 2, 5), 8000, context())
    assert [picked[id] / 8000 for id in "abc"] == pytest.approx([1 / 8, 2 / 8, 5 / 8], abs=0.02)


# -- linear_cost ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "loads", "pending", "held", "taken"),
    [
        ({}, (0, 0), 5 * 128 - 1, 5, "a"),  # the overlap counts token for token
        ({}, (0, 0), 5 * 128 + 1, 5, "b"),
        ({}, (0, 0), 1301, 50, "b"),  # it saves at most the whole prompt
        ({}, (1, 0), 0, 9, "b"),  # a running request costs its usual context
        ({}, (0, 1), 2000, 0, "b"),
        ({"prefill_load_scale": 0.1}, (0, 1), 2000, 0, "a"),
        ({"overlap_credit": 0}, (0, 0), 0, 9, "ab"),
    ],
)
def test_linear_cost_weighs_pending_prefill_batch_and_overlap(
    options: dict[str, float], loads: tuple[int, int], pending: int, held: int, taken: str
) -> None:
    candidates = loaded(*loads)
    candidates[0].pending_tokens = pending
    found = picks(make_policy("linear_cost", options), candidates, PROMPT, {candidates[0]: held})
    assert found == set(taken)


def test_linear_cost_avoids_a_full_cache_and_draws_by_temperature() -> None:
    candidates = loaded(2, 2, 2)
    candidates[0].kv_usage, candidates[0].kv_tokens = 0.9, 100_000
    assert picks(make_policy("linear_cost"), candidates, PROMPT) == {"b", "c"}
    policy = make_policy("linear_cost", {"temperature": 1.0})
    warm = trickle(policy, loaded(0, 1, 2), 3000, context())
    assert warm["a"] > warm["b"] > warm["c"] > 300


# -- preble ---------------------------------------------------------------------------------------


def pick(policy: RoutingPolicy, candidates: list[Candidate], ctx: Context) -> tuple[str, str]:
    found = policy.pick(PROMPT, candidates, ctx)
    return found.candidate.id, found.reason


@pytest.mark.parametrize(
    ("loads", "held", "found"),
    [
        ((0, 0), {0: 5}, ("a", "explore")),  # 640 of 1,300 tokens
        ((0, 0), {0: 6}, ("a", "exploit")),  # 768 tokens: more than half
        ((3, 2, 0), {0: 9, 1: 9, 2: 8}, ("b", "exploit")),  # the least loaded owner
        ((14, 0), {0: 9}, ("a", "exploit")),
        ((17, 0), {0: 9}, ("b", "explore")),  # an owner with 15 times the least load is left
    ],
)
def test_preble_exploits_the_owner_of_more_than_half_of_the_prompt(
    loads: tuple[int, ...], held: dict[int, int], found: tuple[str, str]
) -> None:
    candidates = loaded(*loads)
    holders = {candidates[at]: blocks for at, blocks in held.items()}
    assert pick(make_policy("preble"), candidates, context(held=holders)) == found


def test_preble_leaves_an_owner_whose_answers_take_twice_as_long() -> None:
    policy, candidates = make_policy("preble"), loaded(1, 0)
    ctx = context(held={candidates[0]: 9})
    for now, ttft_s, found in ((900.0, 0.2, "exploit"), (1000.0, 0.5, "explore")):
        ctx.now = now
        policy.on_dispatch(VIEW, candidates[0], ctx)
        for _ in range(10):
            policy.on_first_token(PROMPT, candidates[0], ttft_s, ctx)
        assert pick(policy, candidates, ctx)[1] == found


@pytest.mark.parametrize(
    ("policy", "option", "value"),
    [
        ("linear_cost", "overlap_credit", 1.5),
        ("linear_cost", "temperature", float("nan")),
        ("preble", "window_s", 0),
        ("preble", "rebalance", 0.5),
    ],
)
def test_options_out_of_range_are_refused(policy: str, option: str, value: float) -> None:
    with pytest.raises(PolicyConfigError) as caught:
        make_policy(policy, {option: value})
    assert caught.value.option == option

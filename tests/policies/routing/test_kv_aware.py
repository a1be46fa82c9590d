from collections import Counter
from typing import Any

import pytest

from policies.contract import Candidate, Context, RequestView, make_policy
from tests.policies.helpers import PROMPT, burst, context, fleet, loaded, picks, trickle

# Only the cost product is active: tests are clearest without the policy's additional terms.
LMETRIC = {"miss_cost": 1.0, "batch": 1.0, "crowding": 0.0}


def lmetric(candidate: Candidate, uncached: float) -> float:
    return (candidate.pending_tokens + uncached + 1) * (candidate.load + 1)


def test_the_least_product_is_taken() -> None:
    candidates = loaded(3, 5, 1)
    for candidate, pending in zip(candidates, (4000, 1000, 9000), strict=True):
        candidate.pending_tokens = pending
    held = {candidates[0]: 9, candidates[2]: 4}
    uncached = (1300 - 9 * 128, 1300, 1300 - 4 * 128)
    costs = [lmetric(c, u) for c, u in zip(candidates, uncached, strict=True)]
    best = candidates[costs.index(min(costs))]
    assert picks(make_policy("kv_aware", LMETRIC), candidates, PROMPT, held) == {best.id}


def test_one_holder_and_many_are_scored_alike() -> None:
    """A few holders among many are looked up one by one, many holders all at once."""
    for count in (1, 2, 20, 40):
        candidates = loaded(*[7] * 40)
        candidates[30].load = 6
        held = dict.fromkeys(candidates[:count], 5)
        held[candidates[3]] = 9
        candidates[3].load = 8
        assert picks(make_policy("kv_aware", LMETRIC), candidates, PROMPT, held) == {"d"}


def test_without_a_prompt_it_is_least_load() -> None:
    candidates = loaded(2, 1, 1)
    assert picks(make_policy("kv_aware", LMETRIC), candidates) == {"b", "c"}
    assert picks(make_policy("kv_aware", LMETRIC), candidates, held={candidates[0]: 9}) == {
        "b",
        "c",
    }


@pytest.mark.parametrize(
    "state",
    [
        {"waiting": 64},
        {"slots": 3, "load": 3},
    ],
    ids=["queue", "slots"],
)
def test_a_full_replica_is_avoided_while_another_is_not(state: dict[str, Any]) -> None:
    candidates = loaded(3, 30, 40)
    held = {candidates[0]: 10}
    view = RequestView(prompt_tokens=100_000, blocks=PROMPT.blocks, block_tokens=9_990.0)
    assert picks(make_policy("kv_aware", LMETRIC), candidates, view, held) == {"a"}
    for fact, value in state.items():
        setattr(candidates[0], fact, value)
    assert picks(make_policy("kv_aware", LMETRIC), candidates, view, held) == {"b"}
    for candidate in candidates[1:]:
        candidate.slots = 1
    assert picks(make_policy("kv_aware", LMETRIC), candidates, view, held) == {"a"}


def test_a_full_cache_is_avoided_by_requests_that_would_add_to_it() -> None:
    candidates = loaded(3, 4, 5)
    candidates[0].kv_usage = 0.95
    policy = make_policy("kv_aware", LMETRIC)
    assert picks(policy, candidates, PROMPT) == {"b"}
    # A third of the prompt is not enough, most of it is: other replicas would need room for all of
    # it.
    assert picks(policy, candidates, PROMPT, {candidates[0]: 3}) == {"b"}
    assert picks(policy, candidates, PROMPT, {candidates[0]: 9}) == {"a"}


def test_a_backlog_everywhere_makes_a_miss_dearer() -> None:
    candidates = loaded(20, 8)
    held = {candidates[0]: 9}
    for candidate in candidates:
        candidate.pending_tokens = 4000
    for crowding, expected in ((0.0, {"b"}), (20.0, {"a"})):
        policy = make_policy("kv_aware", {**LMETRIC, "crowding": crowding})
        assert picks(policy, candidates, PROMPT, held) == expected
    # If a replica is idle there is no backlog, and it is used.
    candidates[1].pending_tokens = candidates[1].load = 0
    policy = make_policy("kv_aware", {**LMETRIC, "crowding": 20.0})
    assert picks(policy, candidates, PROMPT, held) == {"b"}


@pytest.mark.parametrize("count", [16, 64, 100])
def test_a_burst_of_one_prompt_spreads(count: int) -> None:
    """A replica that gets it becomes a holder; requests waiting there divert the others."""
    candidates = fleet(*[1.0] * 8)
    policy, ctx = make_policy("kv_aware", LMETRIC), context()
    picked: Counter[str] = Counter()
    for _ in range(count):
        ctx.held = dict.fromkeys([c for c in candidates if c.load], 10)
        picked += burst(policy, candidates, 1, ctx, PROMPT)
    assert 8 * max(picked.values()) / count <= 1.3


def test_a_replica_in_slow_start_is_not_kept_by_its_cache_alone() -> None:
    policy, candidates = make_policy("kv_aware", LMETRIC), fleet(0.1, 1, 1, 1)
    policy.on_fleet_change(frozenset("abcd"))
    picked = trickle(policy, candidates, 400, context(held={candidates[0]: 9}), PROMPT)
    # The replica's fair part is 0.1 of 3.1; a cached prefix may add a third and the margin of 8.
    assert picked["a"] / 400 < 0.1 / 3.1 * 1.4 + 0.02


def test_what_is_long_ago_is_forgotten() -> None:
    policy, candidates = make_policy("kv_aware", LMETRIC), fleet(*[1.0] * 4)
    policy.on_fleet_change(frozenset("abcd"))
    for _ in range(200):
        policy.on_dispatch(PROMPT, candidates[0], context())
    assert picks(policy, candidates, PROMPT, {candidates[0]: 9}) != {"a"}
    for _ in range(250):
        for candidate in candidates:
            policy.on_dispatch(PROMPT, candidate, context())
    assert picks(policy, candidates, PROMPT, {candidates[0]: 9}) == {"a"}


def test_the_reason_says_why() -> None:
    policy, candidates = make_policy("kv_aware", LMETRIC), loaded(0, 1)

    def reason(held: dict[Candidate, int]) -> str:
        return policy.pick(PROMPT, candidates, context(held=held)).reason

    assert reason({}) == "cheapest"
    assert reason({candidates[0]: 9}) == "cached"
    assert reason({candidates[1]: 1}) == "cheapest"
    candidates[0].kv_usage = 1.0
    assert reason({}) == "no room"
    candidates[0].kv_usage = None
    candidates[0].slots = 0
    assert reason({}) == "full"
    candidates[0].slots = None
    policy.on_fleet_change(frozenset("ab"))
    for _ in range(30):
        policy.on_dispatch(PROMPT, candidates[1], Context(context().rng))
    assert reason({candidates[1]: 10}) == "spread"

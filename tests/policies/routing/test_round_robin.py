from __future__ import annotations

from policies.contract import make_policy
from tests.policies.helpers import VIEW, context, fleet


def turns(weights: tuple[float, ...], count: int) -> str:
    policy, candidates, ctx = make_policy("round_robin"), fleet(*weights), context()
    return "".join(policy.pick(VIEW, candidates, ctx).candidate.id for _ in range(count))


def test_equal_weights_take_turns() -> None:
    assert turns((1, 1, 1), 6) == "abcabc"


def test_weights_are_interleaved_as_in_nginx() -> None:
    assert turns((5, 1, 1), 14) == "aabacaa" * 2


def test_load_does_not_matter() -> None:
    policy, candidates = make_policy("round_robin"), fleet(1, 1)
    candidates[0].inflight = 100
    assert policy.pick(VIEW, candidates, context()).candidate.id == "a"


def test_a_replica_that_was_away_does_not_catch_up() -> None:
    policy, candidates, ctx = make_policy("round_robin"), fleet(1, 1, 1), context()
    for _ in range(300):
        policy.pick(VIEW, candidates[:2], ctx)
    back = [policy.pick(VIEW, candidates, ctx).candidate.id for _ in range(6)]
    assert back.count("c") == 2


def test_a_changed_weight_counts_from_the_next_pick() -> None:
    policy, candidates, ctx = make_policy("round_robin"), fleet(1, 1), context()
    for _ in range(10):
        policy.pick(VIEW, candidates, ctx)
    candidates[0].weight = 0.1  # slow start
    picked = [policy.pick(VIEW, candidates, ctx).candidate.id for _ in range(110)]
    assert picked.count("a") == 10


def test_the_state_of_remaining_replicas_is_kept() -> None:
    policy, candidates, ctx = make_policy("round_robin"), fleet(1, 1, 1), context()
    policy.pick(VIEW, candidates, ctx)
    policy.on_fleet_change(frozenset("ab"))
    assert policy.pick(VIEW, candidates[:2], ctx).candidate.id == "b"

"""The contract every registered routing policy keeps, whoever wrote it."""

from __future__ import annotations

import pickle
from random import Random

import pytest

from policies.contract import Candidate, Context, make_policy, policy_names
from tests.policies.helpers import VIEW, burst, context, fleet, trickle

pytestmark = pytest.mark.parametrize("name", policy_names())

# Those that look at the load, or take turns: a burst spreads evenly. `random` promises less.
EVEN = {"least_inflight": 1, "round_robin": 1, "p2c": 5}


def test_the_pick_is_a_candidate_of_the_list_with_a_reason(name: str) -> None:
    policy, ctx, rng = make_policy(name), context(), Random(7)
    everyone = [Candidate(f"r{index}", weight=rng.uniform(0.1, 5)) for index in range(20)]
    for _ in range(500):
        some = rng.sample(everyone, rng.randint(1, 20))
        for candidate in some:
            candidate.inflight = rng.randint(0, 3)
        pick = policy.pick(VIEW, some, ctx)
        assert any(pick.candidate is candidate for candidate in some)
        assert pick.reason


def test_a_single_candidate_is_the_pick(name: str) -> None:
    only = Candidate("a", inflight=10**6, weight=1e-6)
    assert make_policy(name).pick(VIEW, (only,), context()).candidate is only


def test_the_same_generator_state_gives_the_same_picks(name: str) -> None:
    runs = [burst(make_policy(name), fleet(1, 2, 3, 1), 200, context(seed=5)) for _ in range(2)]
    assert runs[0] == runs[1]


def test_only_the_given_generator_is_drawn_from(name: str) -> None:
    """A policy that used the global generator could not be replayed on a virtual clock."""
    import random

    random.seed(1)
    before = random.getstate()
    burst(make_policy(name), fleet(1, 2, 1), 100, context())
    assert random.getstate() == before


def test_a_pick_changes_no_candidate(name: str) -> None:
    candidates = fleet(1, 2, 3)
    candidates[1].inflight = 4
    trickle(make_policy(name), candidates, 50, context())
    assert [(c.id, c.inflight, c.weight) for c in candidates] == [
        ("a", 0, 1),
        ("b", 4, 2),
        ("c", 0, 3),
    ]


def test_the_state_stays_bounded_while_10_000_replicas_come_and_go(name: str) -> None:
    policy, ctx = make_policy(name), context()
    empty = len(pickle.dumps(policy))
    for generation in range(1000):
        candidates = [Candidate(f"replica-{generation}-{index}") for index in range(10)]
        policy.on_fleet_change(frozenset(candidate.id for candidate in candidates))
        burst(policy, candidates, 20, ctx)
    assert len(pickle.dumps(policy)) < empty + 2000
    policy.on_fleet_change(frozenset())
    assert len(pickle.dumps(policy)) <= empty + 10


def test_weights_are_kept_in_a_burst(name: str) -> None:
    picked = burst(make_policy(name), fleet(1, 3), 4000, context())
    assert picked["b"] / 4000 == pytest.approx(0.75, abs=0.03)


def test_weights_are_kept_in_light_traffic(name: str) -> None:
    picked = trickle(make_policy(name), fleet(1, 3), 4000, context())
    assert picked["b"] / 4000 == pytest.approx(0.75, abs=0.03)


def test_an_idle_fleet_shares_light_traffic(name: str) -> None:
    picked = trickle(make_policy(name), fleet(*[1.0] * 8), 8000, context())
    assert min(picked.values()) > 800
    assert max(picked.values()) < 1200


def test_a_burst_on_an_even_fleet_makes_no_hotspot(name: str) -> None:
    picked = burst(make_policy(name), fleet(*[1.0] * 16), 1600, context())
    slack = EVEN.get(name, 50)
    assert max(picked.values()) <= 100 + slack
    if name in EVEN:
        assert min(picked.values()) >= 100 - 2 * slack


def test_two_routers_do_not_herd(name: str) -> None:
    """First picks of many freshly started routers; turns alone start with the first replica."""
    firsts = {
        make_policy(name).pick(VIEW, fleet(1, 1, 1, 1), Context(Random(seed))).candidate.id
        for seed in range(100)
    }
    assert firsts == ({"a"} if name == "round_robin" else {"a", "b", "c", "d"})

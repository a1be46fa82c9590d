from __future__ import annotations

import pytest

from policies.contract import make_policy
from tests.policies.helpers import VIEW, burst, context, fleet, trickle


def test_of_two_the_lower_is_taken() -> None:
    candidates = fleet(1, 1)
    candidates[0].load = 1
    assert trickle(make_policy("p2c"), candidates, 100, context()) == {"b": 100}


def test_the_weight_counts() -> None:
    candidates = fleet(1, 4)
    candidates[0].load, candidates[1].load = 1, 3
    assert trickle(make_policy("p2c"), candidates, 100, context()) == {"b": 100}


def test_the_fullest_of_many_is_never_taken() -> None:
    """The two replicas are distinct; else the fullest could be compared with itself."""
    candidates = fleet(*[1.0] * 5)
    candidates[3].load = 1
    assert "d" not in trickle(make_policy("p2c"), candidates, 2000, context())


def test_every_pair_is_drawn_equally_often() -> None:
    candidates = fleet(1, 1, 1, 1)
    for load, candidate in enumerate(candidates):
        candidate.load = load
    picked = trickle(make_policy("p2c"), candidates, 6000, context())
    # a wins its 3 of 6 pairs, b 2, c 1, d none.
    assert [picked[id] / 1000 for id in "abcd"] == pytest.approx([3, 2, 1, 0], abs=0.2)


def test_two_choices_beat_one_by_far() -> None:
    """Mitzenmacher's result: the load of the fullest of 200 after 200 requests."""
    fullest = {}
    for name in ("random", "p2c"):
        candidates = fleet(*[1.0] * 200)
        fullest[name] = max(burst(make_policy(name), candidates, 200, context()).values())
    assert fullest["p2c"] <= 3 < fullest["random"]


def test_the_reason_says_whether_the_loads_differed() -> None:
    candidates = fleet(1, 1)
    policy = make_policy("p2c")
    assert policy.pick(VIEW, candidates, context()).reason == "tie"
    candidates[0].load = 1
    assert policy.pick(VIEW, candidates, context()).reason == "lower"
    assert policy.pick(VIEW, candidates[:1], context()).reason == "only"


def test_what_others_have_under_way_counts() -> None:
    candidates = fleet(1, 1)
    candidates[0].inflight = candidates[1].inflight = candidates[1].load = 2
    candidates[0].load = 9
    assert trickle(make_policy("p2c"), candidates, 100, context()) == {"b": 100}


def test_of_equal_loads_the_one_where_fewer_wait() -> None:
    candidates = fleet(1, 1)
    candidates[0].load = candidates[1].load = 5
    candidates[0].waiting, candidates[1].waiting = 3, 1
    assert trickle(make_policy("p2c"), candidates, 100, context()) == {"b": 100}

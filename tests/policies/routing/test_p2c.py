from policies.contract import make_policy
from tests.policies.helpers import VIEW, burst, context, fleet, trickle


def test_of_two_the_lower_is_taken() -> None:
    candidates = fleet(1, 1)
    candidates[0].load = 1
    assert trickle(make_policy("p2c"), candidates, 100, context()) == {"b": 100}


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

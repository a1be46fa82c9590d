from policies.contract import make_policy
from tests.policies.helpers import fleet, loaded, picks


def test_the_least_load_for_its_weight_is_taken() -> None:
    assert picks(make_policy("least_load"), loaded(3, 1, 2)) == {"b"}
    candidates = fleet(1, 4, 1)
    for candidate, load in zip(candidates, (2, 4, 2), strict=True):
        candidate.load = load
    assert picks(make_policy("least_load"), candidates) == {"b"}

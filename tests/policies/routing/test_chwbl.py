import pytest

from policies.contract import Candidate, RequestView, RoutingPolicy, make_policy
from tests.policies.helpers import BLOCKS, PROMPT, burst, context, fleet, picks


def home(policy: RoutingPolicy, candidates: list[Candidate], *blocks: int) -> str:
    (found,) = picks(policy, candidates, RequestView(blocks=blocks))
    return found


def test_routers_that_share_nothing_agree() -> None:
    candidates = fleet(*[1.0] * 8)
    fresh, seasoned = make_policy("chwbl"), make_policy("chwbl")
    seasoned.on_fleet_change(frozenset("xyz"))
    burst(seasoned, fleet(1, 1), 50, context(), PROMPT)
    seasoned.on_fleet_change(frozenset("abcdefgh"))
    for number in range(100):
        key = (number, number + 1)
        assert home(fresh, candidates, *key) == home(seasoned, candidates[::-1], *key)


def test_a_session_goes_before_the_prompt() -> None:
    policy, candidates = make_policy("chwbl"), fleet(*[1.0] * 8)
    found = {
        tuple(picks(policy, candidates, RequestView(session="s", blocks=(number,))))
        for number in range(50)
    }
    assert len(found) == 1


def test_a_replica_that_is_no_candidate_keeps_its_keys_for_its_return() -> None:
    policy, candidates = make_policy("chwbl"), fleet(*[1.0] * 8)
    policy.on_fleet_change(frozenset("abcdefgh"))
    before = [home(policy, candidates, number) for number in range(200)]
    for number, id in enumerate(before):
        others = home(policy, candidates[1:], number)
        assert others == id if id != "a" else others != "a"
    assert [home(policy, candidates, number) for number in range(200)] == before


@pytest.mark.parametrize("count", [8, 40, 400])
def test_a_burst_of_one_prompt_keeps_the_bound(count: int) -> None:
    picked = burst(make_policy("chwbl"), fleet(*[1.0] * 8), count, context(), PROMPT)
    mean = count / 8
    assert max(picked.values()) <= max(mean * 1.25, mean + 4)
    assert len(picked) > 1


def test_an_idle_fleet_has_affinity() -> None:
    """A relative bound alone would refuse a replica with one request while the others have none."""
    policy, candidates = make_policy("chwbl"), fleet(*[1.0] * 8)
    first = home(policy, candidates, *BLOCKS)
    next(c for c in candidates if c.id == first).load = 1
    assert home(policy, candidates, *BLOCKS) == first

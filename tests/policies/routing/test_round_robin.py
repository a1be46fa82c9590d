from policies.contract import make_policy
from tests.policies.helpers import VIEW, context, fleet


def turns(weights: tuple[float, ...], count: int) -> str:
    policy, candidates, ctx = make_policy("round_robin"), fleet(*weights), context()
    return "".join(policy.pick(VIEW, candidates, ctx).candidate.id for _ in range(count))


def test_weights_are_interleaved_as_in_nginx() -> None:
    assert turns((5, 1, 1), 14) == "aabacaa" * 2


def test_a_replica_that_was_away_does_not_catch_up() -> None:
    policy, candidates, ctx = make_policy("round_robin"), fleet(1, 1, 1), context()
    for _ in range(300):
        policy.pick(VIEW, candidates[:2], ctx)
    back = [policy.pick(VIEW, candidates, ctx).candidate.id for _ in range(6)]
    assert back.count("c") == 2

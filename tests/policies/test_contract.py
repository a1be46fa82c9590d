"""The contract of every registered routing policy, including third-party ones."""

import pickle
from copy import copy
from random import Random

import pytest

from policies.contract import Candidate, Context, RequestView, make_policy, policy_names
from tests.policies.helpers import PROMPT, VIEW, burst, context, fleet, trickle
from tests.policies.real_views import real_views

pytestmark = pytest.mark.parametrize("name", policy_names())

# Limits of a burst without a cached prefix: an almost even spread; `random` may be less even.
EVEN = {name: 5 if name == "p2c" else 1 for name in policy_names() if name != "random"}
REAL = real_views()
FACTS = tuple(name for name in dir(Candidate("")) if not name.startswith("_"))


def anyone(id: str, rng: Random) -> Candidate:
    """A replica in any state, in which any value may be unknown."""
    inflight = rng.randint(0, 5)
    return Candidate(
        id,
        inflight=inflight,
        weight=rng.choice((1.0, rng.uniform(0.01, 5.0))),
        waiting=rng.randint(0, 30),
        load=inflight + rng.randint(0, 40),
        pending_tokens=rng.choice((0, rng.randint(0, 200_000))),
        kv_usage=rng.choice((None, 0.0, rng.random(), 1.0)),
        kv_tokens=rng.choice((None, 16, 300_000)),
        slots=rng.choice((None, 1, 256)),
        ttft_s=rng.choice((None, 0.0, 2.0)),
        tpot_s=rng.choice((None, 0.0, 0.05)),
    )


def any_view(rng: Random) -> RequestView:
    """Any request: read from a real body, or with random facts that need not be consistent."""
    if rng.random() < 0.5:
        view = copy(rng.choice(REAL))
        view.attempts = rng.choice((0, 0, 1, 2))
        view.output_limit = rng.choice((-1, 16, 4096))
    else:
        blocks = tuple(rng.getrandbits(64) for _ in range(rng.choice((0, 1, 40))))
        view = RequestView(
            prompt_tokens=rng.choice((0, 1, 5000)),
            blocks=blocks,
            block_tokens=rng.choice((16.0, 128.0, 0.5)),
            session=rng.choice((None, "", "s1", "\ud800")),
        )
    view.urgency = rng.randrange(5)
    view.worth = rng.choice((1.0, rng.uniform(0.01, 100.0)))
    view.arrived = rng.uniform(0.0, 10_000.0)
    view.ttft_slo_s = rng.choice((0.25, rng.uniform(0.001, 600.0), float("inf")))
    view.tpot_slo_s = rng.choice((0.05, rng.uniform(0.001, 1.0), float("inf")))
    view.ttft_slo_min_s = rng.choice((0.0, view.ttft_slo_s))
    return view


def any_context(view: RequestView, someone: list[Candidate], rng: Random) -> Context:
    """Holders are some candidates and some other replicas."""
    strangers = [Candidate(f"stranger{i}") for i in range(rng.choice((0, 1, 20)))]
    holders = rng.sample([*someone, *strangers], rng.randint(0, len(someone) + len(strangers)))
    held = {c: rng.randint(1, len(view.blocks)) for c in holders} if view.blocks else {}
    return Context(rng, rng.uniform(0.0, 10_000.0), held)


def test_the_pick_is_a_candidate_in_any_state_of_the_world(name: str) -> None:
    policy, rng = make_policy(name), Random(7)
    for _ in range(500):
        some = [anyone(f"r{index}", rng) for index in range(rng.choice((1, 2, 3, 8, 70)))]
        view = any_view(rng)
        ctx = any_context(view, some, rng)
        pick = policy.pick(view, tuple(some), ctx)
        assert any(pick.candidate is candidate for candidate in some)
        assert pick.reason
        policy.on_dispatch(view, pick.candidate, ctx)
        empty = Context(rng, ctx.now + 0.1)
        policy.on_first_token(view, pick.candidate, rng.choice((0.0, 0.5)), empty)
        policy.on_finish(view, pick.candidate, rng.choice((None, 0, 500)), empty)


def test_a_single_candidate_is_the_pick(name: str) -> None:
    only = Candidate("a", inflight=10**6, weight=1e-6, kv_usage=1.0, waiting=10**6, slots=1)
    assert make_policy(name).pick(PROMPT, (only,), context()).candidate is only
    assert make_policy(name).pick(PROMPT, (only,), context(held={only: 10})).candidate is only


def test_the_same_generator_state_gives_the_same_picks(name: str) -> None:
    def run() -> list[str]:
        policy, rng = make_policy(name), Random(5)
        some = [anyone(f"r{index}", rng) for index in range(12)]
        ids = []
        for _ in range(300):
            view = any_view(rng)
            ctx = any_context(view, some, rng)
            candidate = policy.pick(view, some, ctx).candidate
            policy.on_dispatch(view, candidate, ctx)
            ids.append(candidate.id)
        return ids

    assert run() == run()


def test_only_the_given_generator_is_drawn_from(name: str) -> None:
    """A policy that used the global generator could not be replayed on a virtual clock."""
    import random

    random.seed(1)
    before = random.getstate()
    burst(make_policy(name), fleet(1, 2, 1), 100, context())
    assert random.getstate() == before


def test_a_policy_changes_no_candidate_and_no_request(name: str) -> None:
    policy, rng = make_policy(name), Random(2)
    candidates = [anyone(f"r{index}", rng) for index in range(5)]
    before = [[getattr(c, fact) for fact in FACTS] for c in candidates]
    held = {candidates[1]: 4}
    trickle(policy, candidates, 50, context(held=held), PROMPT)
    assert [[getattr(c, fact) for fact in FACTS] for c in candidates] == before
    assert held == {candidates[1]: 4}


def test_the_state_stays_bounded_while_10_000_replicas_come_and_go(name: str) -> None:
    policy, ctx = make_policy(name), context()
    empty = len(pickle.dumps(policy))
    sizes = []
    for generation in range(1000):
        candidates = [Candidate(f"replica-{generation:04}-{index}") for index in range(10)]
        policy.on_fleet_change(frozenset(candidate.id for candidate in candidates))
        ctx.now += 1.0
        burst(policy, candidates, 10, ctx, PROMPT)
        trickle(policy, candidates, 10, ctx, PROMPT)
        sizes.append(len(pickle.dumps(policy)))
    # A policy keeps state only for the ten current replicas: a hash ring has 128 points for each.
    assert sizes[-1] < empty + 10 * 5000
    assert max(sizes) < min(sizes) + 2000
    policy.on_fleet_change(frozenset())
    assert len(pickle.dumps(policy)) <= empty + 50


def test_late_news_of_a_replica_that_is_gone_leaves_nothing(name: str) -> None:
    policy, ctx = make_policy(name), context()
    candidates = fleet(1, 1)
    burst(policy, candidates, 10, ctx, PROMPT)
    policy.on_fleet_change(frozenset("b"))
    before = len(pickle.dumps(policy))
    policy.on_first_token(PROMPT, candidates[0], 1.0, ctx)
    policy.on_finish(PROMPT, candidates[0], None, ctx)
    assert len(pickle.dumps(policy)) == before


def test_the_state_stays_bounded_under_100_000_unique_prompts(name: str) -> None:
    policy, candidates, ctx = make_policy(name), fleet(*[1.0] * 4), context()
    policy.on_fleet_change(frozenset(c.id for c in candidates))
    sizes = []
    for number in range(100_000):
        ctx.now += 0.01
        view = RequestView(prompt_tokens=300, blocks=(number, -number), session=f"session {number}")
        view.arrived = ctx.now
        candidate = policy.pick(view, candidates, ctx).candidate
        policy.on_dispatch(view, candidate, ctx)
        policy.on_first_token(view, candidate, 0.1, ctx)
        policy.on_finish(view, candidate, 20, ctx)
        if number % 10_000 == 9_999:
            sizes.append(len(pickle.dumps(policy)))
    assert max(sizes[5:]) < max(sizes[:5]) + 500


@pytest.mark.parametrize("view", [VIEW, PROMPT], ids=["unknown prompt", "known prompt"])
def test_weights_are_kept_in_a_burst(name: str, view: RequestView) -> None:
    picked = burst(make_policy(name), fleet(1, 3), 4000, context(), _keyless(view))
    assert picked["b"] / 4000 == pytest.approx(0.75, abs=0.03)


@pytest.mark.parametrize("view", [VIEW, PROMPT], ids=["unknown prompt", "known prompt"])
def test_weights_are_kept_in_light_traffic(name: str, view: RequestView) -> None:
    picked = trickle(make_policy(name), fleet(1, 3), 4000, context(), _keyless(view))
    assert picked["b"] / 4000 == pytest.approx(0.75, abs=0.03)


def _keyless(view: RequestView) -> RequestView:
    """Equal prompts without hashable parts have one key, and thus one replica, for any weights."""
    return RequestView(prompt_tokens=view.prompt_tokens)


def test_an_idle_fleet_shares_light_traffic(name: str) -> None:
    picked = trickle(make_policy(name), fleet(*[1.0] * 8), 8000, context())
    assert min(picked.values()) > 800
    assert max(picked.values()) < 1200


@pytest.mark.parametrize("view", [VIEW, PROMPT], ids=["unknown prompt", "known prompt"])
def test_a_burst_on_an_even_fleet_makes_no_hotspot(name: str, view: RequestView) -> None:
    picked = burst(make_policy(name), fleet(*[1.0] * 16), 1600, context(), _keyless(view))
    slack = EVEN.get(name, 50)
    assert max(picked.values()) <= 100 + slack
    if name in EVEN:
        assert min(picked.values()) >= 100 - 2 * slack


def test_two_routers_do_not_herd(name: str) -> None:
    """First picks of many freshly started routers; only round robin starts with the first
    replica.
    """
    firsts = {
        make_policy(name).pick(VIEW, fleet(1, 1, 1, 1), Context(Random(seed))).candidate.id
        for seed in range(100)
    }
    assert firsts == ({"a"} if name == "round_robin" else {"a", "b", "c", "d"})

"""The chooser's prefix lookups, and the candidates that a policy gets in a large fleet."""

from collections.abc import Sequence
from random import Random
from typing import Any

from policies.contract import Candidate, Context, Pick, RequestView, RoutingPolicy
from router.config.model import Health, Prefix, Replica as Config
from router.dispatch.chooser import Chooser, Policies
from router.fleet.prefix.lookup import PrefixLookup
from router.fleet.replica import Replica
from router.observe.metrics import Metrics

BLOCKS = (1, 2)
SAMPLE = 8


class Noting(RoutingPolicy):
    """Picks the first candidate, and records all candidates and the blocks held at a dispatch."""

    def __init__(self) -> None:
        self.candidates: list[Any] = []
        self.held: list[int] = []

    def pick(self, view: RequestView, candidates: Sequence[Any], ctx: Context) -> Pick[Any]:
        self.candidates = list(candidates)
        return Pick(candidates[0], "first")

    def on_dispatch(self, view: RequestView, candidate: Candidate, ctx: Context) -> None:
        self.held.append(ctx.held.get(candidate, 0))


def known(count: int) -> tuple[list[Replica], PrefixLookup]:
    """Return replicas, and an index that knows them."""
    replicas = [
        Replica(Config(url=f"http://r{n}", id=f"r{n}"), Health(), None) for n in range(count)
    ]
    knowledge = PrefixLookup(Prefix())
    knowledge.add_all(replicas)
    return replicas, knowledge


def test_each_dispatch_uses_a_prefix_lookup_of_its_own() -> None:
    """A preempted request is sent again without a new choice, after its blocks were evicted."""
    replicas, knowledge = known(2)
    policy = Noting()
    chooser = Chooser(Policies(policy, {}, 64), knowledge, Metrics(), Random(0))
    view = RequestView("chat", None, True)
    knowledge.measure(view, BLOCKS, 2 * knowledge.rules.block_bytes)
    first, second = replicas
    knowledge.sent(first, BLOCKS, 0)
    knowledge.begun(first, BLOCKS, 0)
    lookups = knowledge.prefixes.stats.lookups
    assert chooser.choose(view, replicas, 0.0) is first
    assert chooser.uncached_at(view, first) == 0
    assert chooser.dispatched(view, first, 0.0) == (0, 2)
    assert knowledge.prefixes.stats.lookups == lookups + 1
    knowledge.restarted(first)
    assert chooser.dispatched(view, first, 60.0) == (view.prompt_tokens, 0)
    knowledge.begun(second, BLOCKS, 0)
    assert chooser.dispatched(view, second, 61.0) == (0, 2)
    assert policy.held == [2, 0, 2]


def test_holders_are_seen_once_and_only_where_they_are_candidates() -> None:
    rng = Random(3)
    replicas, knowledge = known(20)
    policy = Noting()
    chooser = Chooser(Policies(policy, {}, SAMPLE), knowledge, Metrics(), rng)
    inside = outside = 0
    for prompt in range(300):
        # Sometimes a new tuple, as the fleet table creates; not all holders are fit to serve.
        if prompt % 50 == 0:
            candidates = tuple(sorted(rng.sample(replicas, 15), key=replicas.index))
        view = RequestView("chat", None, True)
        knowledge.measure(view, (prompt,), 512)
        holders = rng.sample(replicas, rng.randrange(5))
        for holder in holders:
            knowledge.sent(holder, view.blocks, 0)
        chooser.choose(view, candidates, 0.0)
        seen = policy.candidates
        assert len(set(seen)) == len(seen)
        start = candidates.index(seen[0])
        window = [candidates[(start + step) % len(candidates)] for step in range(SAMPLE)]
        assert seen[:SAMPLE] == window
        fit = [holder for holder in holders if holder in candidates]
        assert set(seen[SAMPLE:]) == set(fit) - set(window)
        inside += len(set(fit) & set(window))
        outside += len(seen) - SAMPLE
    assert inside > 50 and outside > 50

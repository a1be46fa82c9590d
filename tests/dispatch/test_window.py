"""In a large fleet a policy gets some candidates plus the holders of the prefix, each once."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from policies.contract import Context, Pick, RequestView, RoutingPolicy
from router.config.model import Health, Prefix
from router.config.model import Replica as Config
from router.dispatch.chooser import Chooser, Policies
from router.fleet.prefix.lookup import PrefixLookup
from router.fleet.replica import Replica
from router.observe.metrics import Metrics

SAMPLE = 8


class Noting(RoutingPolicy):
    """Picks the first candidate and records all candidates."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def pick(self, view: RequestView, candidates: Sequence[Any], ctx: Context) -> Pick[Any]:
        self.seen = list(candidates)
        return Pick(candidates[0], "first")


def test_holders_are_seen_once_and_only_where_they_are_candidates() -> None:
    rng = Random(3)
    replicas = [
        Replica(Config(url=f"http://r{number}", id=f"r{number}"), Health(), None)
        for number in range(20)
    ]
    knowledge = PrefixLookup(Prefix())
    knowledge.add_all(replicas)
    policy = Noting()
    chooser = Chooser(Policies(policy, {}), SAMPLE, knowledge, Metrics(), rng)
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
        seen = policy.seen
        assert len(set(seen)) == len(seen)
        start = candidates.index(seen[0])
        window = [candidates[(start + step) % len(candidates)] for step in range(SAMPLE)]
        assert seen[:SAMPLE] == window
        fit = [holder for holder in holders if holder in candidates]
        assert set(seen[SAMPLE:]) == set(fit) - set(window)
        inside += len(set(fit) & set(window))
        outside += len(seen) - SAMPLE
    assert inside > 50 and outside > 50

"""The chooser's prefix lookups."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from policies.contract import Candidate, Context, Pick, RequestView, RoutingPolicy
from router.config.model import Health, Prefix
from router.config.model import Replica as Config
from router.dispatch.chooser import Chooser, Policies
from router.fleet.prefix.lookup import PrefixLookup
from router.fleet.replica import Replica
from router.observe.metrics import Metrics

BLOCKS = (1, 2)


class Noting(RoutingPolicy):
    """Picks the first candidate and records the blocks that the replica of a dispatch holds."""

    def __init__(self) -> None:
        self.held: list[int] = []

    def pick(self, view: RequestView, candidates: Sequence[Any], ctx: Context) -> Pick[Any]:
        return Pick(candidates[0], "first")

    def on_dispatch(self, view: RequestView, candidate: Candidate, ctx: Context) -> None:
        self.held.append(ctx.held.get(candidate, 0))


def test_each_dispatch_uses_a_prefix_lookup_of_its_own() -> None:
    """A preempted request is sent again without a new choice, after its blocks were evicted."""
    replicas = [
        Replica(Config(url=f"http://r{number}", id=f"r{number}"), Health(), None)
        for number in range(2)
    ]
    knowledge = PrefixLookup(Prefix())
    knowledge.add_all(replicas)
    policy = Noting()
    chooser = Chooser(Policies(policy, {}), 64, knowledge, Metrics(), Random(0))
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

"""What tests of routing policies share: a fleet, a context, a burst that counts its leases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

from policies.contract import Candidate, Context, RequestView, RoutingPolicy

VIEW = RequestView(model="m", stream=True, body_bytes=100)


def fleet(*weights: float) -> list[Candidate]:
    """Replicas a, b, c, … of these weights."""
    return [Candidate(chr(ord("a") + index), weight=w) for index, w in enumerate(weights)]


def context(seed: int = 0) -> Context:
    return Context(Random(seed), now=1000.0)


def burst(
    policy: RoutingPolicy, candidates: Sequence[Candidate], count: int, ctx: Context
) -> Counter[str]:
    """`count` picks that all stay under way, as when every prompt is long; picks per replica."""
    picked: Counter[str] = Counter()
    for _ in range(count):
        candidate = policy.pick(VIEW, candidates, ctx).candidate
        candidate.inflight += 1
        picked[candidate.id] += 1
    return picked


def trickle(
    policy: RoutingPolicy, candidates: Sequence[Candidate], count: int, ctx: Context
) -> Counter[str]:
    """`count` picks, each finished before the next; picks per replica."""
    return Counter(policy.pick(VIEW, candidates, ctx).candidate.id for _ in range(count))

"""Shared helpers of routing policy tests: a fleet, a context, requests counted like leases."""

from collections import Counter
from collections.abc import Sequence
from random import Random

from policies.contract import Candidate, Context, RequestView, RoutingPolicy

VIEW = RequestView(model="m", stream=True, body_bytes=100)  # the prompt is unknown
BLOCKS = tuple(range(1001, 1011))
PROMPT = RequestView(prompt_tokens=1300, blocks=BLOCKS, block_tokens=128.0)


def fleet(*weights: float) -> list[Candidate]:
    """Replicas a, b, c, … of these weights."""
    return [Candidate(chr(ord("a") + index), weight=w) for index, w in enumerate(weights)]


def loaded(*loads: int) -> list[Candidate]:
    """Replicas a, b, c, … with this number of running requests, none of which waits."""
    return [Candidate(chr(ord("a") + i), inflight=load) for i, load in enumerate(loads)]


def context(seed: int = 0, held: dict[Candidate, int] | None = None) -> Context:
    return Context(Random(seed), now=1000.0, held=held or {})


def burst(
    policy: RoutingPolicy,
    candidates: Sequence[Candidate],
    count: int,
    ctx: Context,
    view: RequestView = VIEW,
) -> Counter[str]:
    """`count` picks that all wait, as when every prompt is long; returns picks per replica."""
    picked: Counter[str] = Counter()
    for _ in range(count):
        view.arrived = ctx.now
        candidate = policy.pick(view, candidates, ctx).candidate
        policy.on_dispatch(view, candidate, ctx)
        uncached = view.prompt_tokens - int(ctx.held.get(candidate, 0) * view.block_tokens)
        candidate.inflight += 1
        candidate.load += 1
        candidate.waiting += 1
        candidate.pending_tokens += max(uncached, 0)
        picked[candidate.id] += 1
    return picked


def trickle(
    policy: RoutingPolicy,
    candidates: Sequence[Candidate],
    count: int,
    ctx: Context,
    view: RequestView = VIEW,
) -> Counter[str]:
    """`count` picks, each finished before the next; returns picks per replica."""
    picked: Counter[str] = Counter()
    for _ in range(count):
        view.arrived = ctx.now
        candidate = policy.pick(view, candidates, ctx).candidate
        policy.on_dispatch(view, candidate, ctx)
        policy.on_first_token(view, candidate, 0.1, Context(ctx.rng, ctx.now))
        policy.on_finish(view, candidate, 10, Context(ctx.rng, ctx.now))
        picked[candidate.id] += 1
    return picked


def picks(
    policy: RoutingPolicy,
    candidates: Sequence[Candidate],
    view: RequestView = VIEW,
    held: dict[Candidate, int] | None = None,
) -> set[str]:
    """The replicas that may be picked in this state, over many random generators."""
    return {policy.pick(view, candidates, context(seed, held)).candidate.id for seed in range(50)}

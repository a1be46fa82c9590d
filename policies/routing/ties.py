"""Functions that the policies share: the cheapest of many candidates, and a draw among ties.

In an idle fleet all replicas are tied. If the first replica were taken, that replica would get all
the light traffic, from every router. So ties are drawn in proportion to their weights. For the same
reason llm-d's max-score picker shuffles (llm-d-router#2515: a whole burst went to one pod).
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from policies.contract import C


def lowest(candidates: Sequence[C], costs: list[float]) -> Sequence[C]:
    """Return the candidates whose cost is the lowest; `costs` has the order of `candidates`."""
    low = min(costs)
    count = costs.count(low)
    if count == 1:
        return (candidates[costs.index(low)],)
    if count == len(costs):
        return candidates
    return [c for c, cost in zip(candidates, costs, strict=True) if cost == low]


def draw(tied: Sequence[C], rng: Random) -> C:
    """Draw one of `tied`, in proportion to the weights. For a single candidate, no random number is
    used."""
    if len(tied) == 1:
        return tied[0]
    weights = [c.weight for c in tied]
    if weights.count(weights[0]) == len(weights):
        return tied[int(rng.random() * len(weights))]
    return rng.choices(tied, weights)[0]


def least_loaded(candidates: Sequence[C], rng: Random) -> C:
    """Return the candidate with the least load / weight. Ties are broken by the fewest waiting
    requests, then by a draw.
    """
    tied = lowest(candidates, [c.load / c.weight for c in candidates])
    if len(tied) > 1:
        tied = lowest(tied, [c.waiting / c.weight for c in tied])
    return draw(tied, rng)

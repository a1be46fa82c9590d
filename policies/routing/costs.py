"""Loops over all candidates of one choice, in a separate module because they are compiled.

Must never: change a candidate, or depend on the policy that calls it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final

from policies.facts import C

_INFINITY: Final = float("inf")


def least_pending(candidates: Sequence[C]) -> int:
    """Return the lowest number of uncached prompt tokens that wait for prefill at any candidate."""
    least = candidates[0].pending_tokens
    for candidate in candidates:
        least = min(least, candidate.pending_tokens)
    return least


def cheapest(
    candidates: Sequence[C],
    held: Mapping[Any, int],
    new: float,
    spared: float,
    batch: float,
    rng: Random,
) -> C:
    """Return the candidate with the least (pending / weight + miss) * (load / weight + batch).

    `miss` is `new` less `spared` for each leading block that the candidate holds, and at least 1.
    Among equal costs, the candidate is drawn by weight in one pass: a later candidate replaces the
    earlier choice with a probability equal to its share of the weights so far (Chao 1982).
    """
    known = held if isinstance(held, dict) else dict(held)
    best = candidates[0]
    least = _INFINITY
    tied = 0.0  # the sum of the weights of all candidates at `least`; 0: there is only one
    for c in candidates:
        miss = new
        if known:
            depth = known.get(c, 0)
            if depth:
                # `max`, or an int times a float, would be slower: the compiler would box the
                # numbers.
                miss = new - float(depth) * spared
                if miss < 1.0:
                    miss = 1.0
        weight = c.weight
        if weight == 1.0:
            cost = (c.pending_tokens + miss) * (c.load + batch)
        else:
            cost = (c.pending_tokens / weight + miss) * (c.load / weight + batch)
        if cost < least:
            best, least, tied = c, cost, 0.0
        elif cost == least:
            tied = (tied or best.weight) + weight
            if rng.random() * tied < weight:
                best = c
    return best

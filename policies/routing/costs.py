"""Sums over all candidates of one choice: the part of a policy that is worth compiling.

Must never: change anything, or know why the cheapest is looked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final

from policies.facts import C

_INFINITY: Final = float("inf")


def least_pending(candidates: Sequence[C]) -> int:
    """The fewest uncached prompt tokens that wait at any of them."""
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
    """The least (pending / weight + miss) * (load / weight + batch), where a miss costs `new`, less
    `spared` for each leading block that is held, and at least 1.

    Among equals the newcomer wins with its share of the weights so far (Chao 1982).
    """
    known = held if isinstance(held, dict) else dict(held)
    best = candidates[0]
    least = _INFINITY
    tied = 0.0  # the summed weights of all at `least`; 0: best stands alone
    for c in candidates:
        miss = new
        if known:
            depth = known.get(c, 0)
            if depth:
                # Not `max`, and no whole number times a float: the compiler would box all three.
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

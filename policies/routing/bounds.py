"""How much more than its share a replica may have before affinity gives way to load.

The bound is relative and absolute, whichever is larger: a ratio alone measures noise where numbers
are small (smg#2150: the square root of N routers) and gives an idle fleet no affinity at all. It is
measured against the mean, so that one empty newcomer does not make every other look overloaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from policies.contract import Candidate, PolicyConfigError


class Bounded(Protocol):
    """Options of a policy with a load bound."""

    relative: float  # times the mean load; Mirrokni et al. call it 1 + epsilon
    absolute: float  # requests above the mean load


def check_bounds(policy: Bounded) -> None:
    if not 1.0 <= policy.relative < float("inf"):
        raise PolicyConfigError("relative is a factor, 1 or more", "relative")
    if not 0.0 <= policy.absolute < float("inf"):
        raise PolicyConfigError("absolute is a number of requests, 0 or more", "absolute")


def load_bound(policy: Bounded, candidates: Sequence[Candidate], incoming: int = 0) -> float:
    """The load per unit of weight that a replica may have; `incoming` joins the load of all.

    The margins are for a replica of mean weight, so weights count by their ratios only.
    """
    load = sum([c.load for c in candidates]) + incoming
    weight = sum([c.weight for c in candidates])
    margin = policy.absolute * len(candidates) / weight
    return max(load / weight * policy.relative, load / weight + margin)

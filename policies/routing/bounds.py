"""Computes the load above which a replica is too busy to be chosen for its cached prefix.

The bound is the larger of a relative and an absolute one. A relative bound alone has two faults.
Small loads differ at random (smg#2150: by the square root of the number of routers), so they often
exceed a relative bound. In an idle fleet, one request may exceed a relative bound, so the cached
prefix is not used. The bound refers to the mean load, so that one new, empty replica does not make
all others look overloaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from policies.contract import Candidate, PolicyConfigError


class Bounded(Protocol):
    """The options of every policy that has a load bound."""

    relative: float  # The bound in multiples of the mean load; 1 + epsilon in Mirrokni et al.
    absolute: float  # The bound in requests above the mean load.


def check_bounds(policy: Bounded) -> None:
    if not 1.0 <= policy.relative < float("inf"):
        raise PolicyConfigError("relative must be a factor, 1 or more", "relative")
    if not 0.0 <= policy.absolute < float("inf"):
        raise PolicyConfigError("absolute must be a number of requests, 0 or more", "absolute")


def load_bound(policy: Bounded, candidates: Sequence[Candidate], incoming: int = 0) -> float:
    """Return the load per unit of weight that a replica may have. `incoming` requests are added to
    the total load.

    The absolute margin applies to a replica of mean weight, so only the ratios of weights matter.
    """
    load = sum([c.load for c in candidates]) + incoming
    weight = sum([c.weight for c in candidates])
    margin = policy.absolute * len(candidates) / weight
    return max(load / weight * policy.relative, load / weight + margin)

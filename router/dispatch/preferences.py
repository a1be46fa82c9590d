"""The candidates that a request prefers: those with its LoRA adapter, and spot replicas or others.

**Adapters.** Loading an adapter delays the first token, and may replace an adapter that other
requests need. So the routing policy gets only replicas that have the adapter in memory, or that
hold a part of the prompt's prefix. If there is none, it gets the replicas with free space for
another adapter. This is the order of the LoRA affinity scorer of the Gateway API Inference
Extension. The preference is bounded, so that the requests of an adapter do not pile up at one
replica: a replica is preferred only while its load is near the mean load of the candidates
(consistent hashing with bounded loads, Mirrokni et al., arXiv 1608.01350). Policies that must see
all candidates, such as those that keep sessions at their replicas, have no preference.

**Spot replicas.** A spot machine can be reclaimed at short notice. A second attempt delays a
request, which matters for critical requests, but not for batch requests. The preference applies
only among replicas on which no request waits for its first token. So it never makes a request wait,
and never leaves a request without a replica. In a fleet of several regions, the candidates are the
replicas of the chosen region.

Must never: run while no replica lists an adapter, or is a spot replica (the chooser checks it), or
remove the last candidate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from policies.routing.bounds import load_bound
from router.core.urgency import BATCH, CRITICAL
from router.fleet.replica import Replica


class _Bounds:
    """The load up to which a replica is preferred."""

    relative: float = 1.25  # The default of the policy `chwbl`.
    # Small, because a request that loads the adapter at another replica also makes that replica a
    # preferred one.
    absolute: float = 1.0


_BOUNDS: Final = _Bounds()


def preferred_for(
    adapter: str, candidates: Sequence[Replica], held: Mapping[Replica, int]
) -> Sequence[Replica]:
    """Return the candidates that the requests of an adapter prefer.

    If no such candidate is near the mean load, return the candidates that are.

    `held`: the replicas that hold a part of the prompt's prefix.
    """
    bound = load_bound(_BOUNDS, candidates, 1)
    near = [r for r in candidates if r.load < bound * r.weight]
    found = [r for r in near if r.loaded_adapters.holds(adapter) or r in held]
    if not found:
        found = [r for r in near if not r.loaded_adapters.is_full]
    return found or near or candidates


def preferred_by_class(candidates: Sequence[Replica], urgency: int) -> Sequence[Replica]:
    """Return the candidates that the class `urgency` prefers; all candidates if there are none."""
    if urgency == BATCH:
        wants_spot = True
    elif urgency == CRITICAL:
        wants_spot = False
    else:
        return candidates
    found = [r for r in candidates if r.is_spot == wants_spot and not r.waiting]
    return found or candidates

"""Utilisation: requests that run or wait, divided by the requests that can run at once.

Hedging, admission, regions and the admin API use the same definition. The capacity of a replica is
the configured limit or the engine's reported limit, whichever is less. If neither is known, the
capacity is learned (`fleet/learned_capacity.py`).

Must never: do I/O, or treat a replica of unknown capacity as idle or as full.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from router.fleet.replica import Replica

# The default of `prefix.kv_tokens`: the size of a KV cache that is not reported, in tokens.
_USUAL_KV_TOKENS: Final = 500_000


def capacity(replica: Replica) -> float | None:
    """Return the number of requests that can run at once; `None` if the number is unknown."""
    configured, slots = replica.config.max_inflight, replica.slots
    if configured is not None and slots is not None:
        return min(configured, slots)
    if configured is not None:
        return configured
    return slots if slots is not None else replica.learned.capacity.requests


def slots_of(replica: Replica) -> float | None:
    """Return the number of requests that the engine runs at once, reported or learned.

    `None`: the engine reports no such number, and no poll has shown that the engine is full.
    `max_inflight` is not used here, because it may be far above the number of requests that the
    engine runs.
    """
    return replica.learned.capacity.slots if replica.slots is None else replica.slots


def utilisation(replicas: Iterable[Replica]) -> float | None:
    """Return the utilisation of one replica or of a pool; above 1 if requests wait.

    `None`: no capacity is known. Replicas with an unknown capacity are left out.
    """
    load = 0
    total = 0.0
    for replica in replicas:
        found = capacity(replica)
        if found is not None:
            load += replica.load
            total += found
    return load / total if total else None


def kv_occupancy(replicas: Iterable[Replica]) -> float | None:
    """Return the share of the KV cache of all replicas that is in use, 0 to 1.

    The shares are the present estimates, weighted by the sizes of the caches. A cache of unknown
    size is assumed to have a typical size. Replicas without metrics are not counted. `None`: no
    share is known.
    """
    used = 0.0
    total = 0.0
    for replica in replicas:
        share = replica.kv_usage
        if share is not None:
            tokens = float(replica.kv_tokens or _USUAL_KV_TOKENS)
            used += share * tokens
            total += tokens
    return used / total if total else None

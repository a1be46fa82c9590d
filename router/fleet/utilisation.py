"""Utilisation: requests that run or wait, over the requests that run at once. One definition for
hedging, admission and the admin API.

The capacity of a replica is what it was configured to take, or what its engine says, whichever is
less; without either it is learned (`fleet/learned_capacity.py`).

Must never: do I/O, or take what is unknown for idle or for full.
"""

from __future__ import annotations

from collections.abc import Iterable

from router.fleet.replica import Replica


def capacity(replica: Replica) -> float | None:
    """Requests that run at once, as far as anything tells; None: nobody knows."""
    configured, slots = replica.configured_slots, replica.slots
    if configured is not None and slots is not None:
        return min(configured, slots)
    if configured is not None:
        return configured
    return slots if slots is not None else replica.learned.requests


def slots_of(replica: Replica) -> float | None:
    """Requests that the engine runs at once, told or seen; None: it was never seen to be full.

    `max_inflight` is no answer to this: it may be far above what the engine runs."""
    return replica.learned.slots if replica.slots is None else replica.slots


def utilisation(replicas: Iterable[Replica]) -> float | None:
    """Of one replica or of a pool; above 1 where requests wait. None: no capacity is known.

    Replicas of unknown capacity are left out: the others stand for them.
    """
    load = 0
    total = 0.0
    for replica in replicas:
        found = capacity(replica)
        if found is not None:
            load += replica.load
            total += found
    return load / total if total else None

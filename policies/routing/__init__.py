"""The built-in routing policies, one a file; importing this package registers them all."""

from policies.routing import (
    chwbl,
    kv_aware,
    kv_occupancy,
    least_inflight,
    least_load,
    least_tokens,
    linear_cost,
    p2c,
    preble,
    prefix_affinity,
    random,
    round_robin,
    session,
    weighted,
)

__all__ = [
    "chwbl",
    "kv_aware",
    "kv_occupancy",
    "least_inflight",
    "least_load",
    "least_tokens",
    "linear_cost",
    "p2c",
    "preble",
    "prefix_affinity",
    "random",
    "round_robin",
    "session",
    "weighted",
]

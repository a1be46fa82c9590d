"""The contract between a routing policy and its caller, the proxy or the simulator.

A policy is a synchronous, deterministic function: it gets plain facts (`RequestView`, `Candidate`,
`Context`) and returns a `Pick`. It must never use a socket, a clock, the global random generator or
another module of the router. `now` and `rng` come through the context, so the same object also runs
on a virtual clock.

One contract test checks these rules for every registered policy:
- `candidates` is never empty and is already filtered by model, region, health, slots and earlier
  attempts;
- the pick is one of the candidates; the same state of `ctx.rng` gives the same pick;
- a missing signal is `None`, never 0 or NaN, and must not cause an exception;
- state stays bounded when ten thousand replicas come and go (`on_fleet_change` lists the present
  ones).

If a policy raises or returns an invalid pick, the caller picks a random candidate and counts the
error. Third parties register policies through the entry-point group `hedgerow.policies`; the entry
point's name is the policy's name. A policy that cannot be imported causes an error only if the
configuration names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from policies.base import RoutingPolicy as RoutingPolicy
from policies.facts import (
    C as C,
    Candidate as Candidate,
    Context as Context,
    Pick as Pick,
    RequestView as RequestView,
)
from policies.registry import PolicyConfigError as PolicyConfigError, Registry

# The names of routing policies in other routers (deploy/migration.md).
_OTHERS = {
    **dict.fromkeys(("cache_aware", "cache-aware", "kvaware", "kv-aware"), "kv_aware"),
    **dict.fromkeys(("prefix_aware", "prefixaware", "prefix-aware"), "prefix_affinity"),
    **dict.fromkeys(("power_of_two", "power_of_2", "power-of-two"), "p2c"),
    **dict.fromkeys(("roundrobin", "round-robin"), "round_robin"),
    **dict.fromkeys(
        ("consistent_hash", "consistent-hash", "manual", "sticky", "sticky_least_loaded"), "session"
    ),
    **dict.fromkeys(("least-busy", "least_busy", "least_requests"), "least_load"),
    **dict.fromkeys(
        # The last two were policies of Hedgerow, never better than all others in its bench.
        ("least_conn", "leastconn", "least_inflight", "kv_occupancy"),
        "least_load",
    ),
    **dict.fromkeys(("preble", "linear_cost"), "kv_aware"),  # the same, with knowledge of prefixes
    "simple-shuffle": "random",
}
ROUTING: Registry[RoutingPolicy] = Registry(
    "routing", "policies.routing", "hedgerow.policies", _OTHERS
)
P = TypeVar("P", bound=type[RoutingPolicy])


def policy(name: str) -> Callable[[P], P]:
    """Register a routing policy class under `name`. The decorator goes above `@dataclass`."""
    return ROUTING.register(name)


def policy_names() -> list[str]:
    """The names that `make_policy` accepts, sorted. Third-party policies are not imported."""
    return ROUTING.names()


def make_policy(name: str, options: Mapping[str, Any] | None = None) -> RoutingPolicy:
    """Build a policy from its name and its options, a mapping as in the configuration file.

    Raises PolicyConfigError for an unknown name, an unknown option or a bad value.
    """
    return ROUTING.make(name, options)

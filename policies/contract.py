"""The contract between a routing policy and whoever drives it, the proxy or a simulator.

A policy is a synchronous, deterministic choice: it sees plain facts (`RequestView`, `Candidate`,
`Context`) and returns a `Pick`. It must never touch a socket, a clock, the global random generator
or another module of the router: `now` and `rng` come through the context, so the same object runs
on a virtual clock.

The rules, held by one contract test over every registered policy:
- `candidates` is never empty and already filtered (model, health, slots, not yet tried);
- the pick is one of them, and the same for the same `ctx.rng` state;
- missing signals are `None`, never 0 and never NaN, and never an exception;
- state stays bounded when ten thousand replicas come and go (`on_fleet_change` tells who is left).

If a policy raises or answers nonsense, the caller falls back to a random candidate and counts it.
Third parties register theirs through the entry-point group `hedgerow.policies`; the entry point's
name is the policy's name. One that cannot be imported harms nobody but who asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from policies.base import RoutingPolicy as RoutingPolicy
from policies.facts import C as C
from policies.facts import Candidate as Candidate
from policies.facts import Context as Context
from policies.facts import Pick as Pick
from policies.facts import RequestView as RequestView
from policies.registry import PolicyConfigError as PolicyConfigError
from policies.registry import Registry

ROUTING: Registry[RoutingPolicy] = Registry("routing", "policies.routing", "hedgerow.policies")
P = TypeVar("P", bound=type[RoutingPolicy])


def policy(name: str) -> Callable[[P], P]:
    """Register a routing policy class under `name`; stands above its `@dataclass`."""
    return ROUTING.register(name)


def policy_names() -> list[str]:
    """Names to ask `make_policy` for, sorted. Third parties' are listed without being imported."""
    return ROUTING.names()


def make_policy(name: str, options: Mapping[str, Any] | None = None) -> RoutingPolicy:
    """Build a policy from its name and options (a mapping as it stands in the configuration).

    Raises PolicyConfigError for an unknown name, an unknown option or a bad value.
    """
    return ROUTING.make(name, options)

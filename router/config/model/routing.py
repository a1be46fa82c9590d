"""Declares the section `routing`: the policy that chooses replicas."""

from __future__ import annotations

from typing import Any

from router.config.model.setting_types import Count, Frozen


class PolicyChoice(Frozen, frozen=True):
    """The routing policy for one model."""

    policy: str  # The name of a routing policy.
    options: dict[str, Any] = {}  # The policy's options.


class Routing(Frozen, frozen=True):
    """How the router chooses the replica for a request."""

    policy: str = "kv_aware"  # The routing policy.
    options: dict[str, Any] = {}  # The policy's options.
    models: dict[str, PolicyChoice] = {}  # Other policies for single models, by model name.
    # Number of replicas, drawn at random, that a policy compares. Replicas that have the prompt's
    # prefix in their cache are compared in addition.
    sample: Count = 64

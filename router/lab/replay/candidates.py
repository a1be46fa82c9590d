"""Makes the configurations to compare: copies of one configuration with other policies.

The routing, order and hedging policies can be replaced. All functions are pure. Must never: change
any other setting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from router.config.model import Config
from router.config.varied import varied
from router.lab.replay.arguments import OFF, Choice


@dataclass(frozen=True, slots=True)
class Candidate:
    """A configuration and its label in reports."""

    label: str
    config: Config


def as_configured(config: Config) -> Candidate:
    """Return the unchanged configuration as a candidate."""
    return Candidate(config.routing.policy, config)


def candidates(
    base: Config,
    policies: Sequence[Choice],
    orders: Sequence[Choice],
    hedges: Sequence[Choice],
) -> list[Candidate]:
    """Return every combination of the given policies as a candidate.

    For an empty sequence, the policy of `base` is kept. A routing policy replaces the routing
    policies of all models. An order policy of the queue and a hedging policy keep the other
    settings of their sections of the configuration.
    """
    found = []
    for policy in policies or (None,):
        routed = base if policy is None else _routed(base, policy)
        for order in orders or (None,):
            queued = routed if order is None else _queued(routed, order)
            for hedge in hedges or (None,):
                config = queued if hedge is None else _hedged(queued, hedge)
                label = base.routing.policy if policy is None else policy.label
                label += "" if order is None else f", queue {order.label}"
                label += "" if hedge is None else f", hedging {hedge.label}"
                found.append(Candidate(label, config))
    return found


def _routed(base: Config, choice: Choice) -> Config:
    routing = {"policy": choice.name, "options": dict(choice.options), "models": {}}
    return varied(base, routing=routing)


def _queued(base: Config, choice: Choice) -> Config:
    if choice.name == OFF:
        return varied(base, queue={"enabled": False})
    return varied(
        base, queue={"enabled": True, "policy": choice.name, "options": dict(choice.options)}
    )


def _hedged(base: Config, choice: Choice) -> Config:
    return varied(base, hedging={"policy": choice.name, "options": dict(choice.options)})

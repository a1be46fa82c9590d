"""The compared combinations of an order of the router's queue and a routing policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Contestant:
    """One combination, which is one row of the table."""

    order: str  # name of the queue's order
    policy: str  # name of the routing policy

    @property
    def name(self) -> str:
        return f"{self.order} + {self.policy}"


OURS: Final = Contestant("slide", "gain")
BASELINES: Final = (
    Contestant("fifo", "least_load"),
    Contestant("strict", "least_load"),
    Contestant("edf", "kv_aware"),
    # Like llm-d: priority classes served strictly in order, and its scorers' default weights.
    Contestant("strict", "weighted"),
)
# The default settings, and the order of OURS with the default routing policy.
OTHERS: Final = (
    Contestant("fair", "kv_aware"),
    Contestant("slide", "kv_aware"),
)
ALL: Final = (OURS, *BASELINES, *OTHERS)

"""The contestants: an order of the queue together with a routing policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Contestant:
    """One row of the table."""

    order: str  # of the queue
    policy: str  # of routing

    @property
    def name(self) -> str:
        return f"{self.order} + {self.policy}"


OURS: Final = Contestant("slide", "gain")
BASELINES: Final = (
    Contestant("fifo", "least_load"),
    Contestant("strict", "least_load"),
    Contestant("edf", "kv_aware"),
    # llm-d: priority bands in front of the engines, and its scorers' default weights.
    Contestant("strict", "weighted"),
)
# What a fresh installation does, and each half of ours alone.
OTHERS: Final = (
    Contestant("fair", "kv_aware"),
    Contestant("slide", "kv_aware"),
)
ALL: Final = (OURS, *BASELINES, *OTHERS)

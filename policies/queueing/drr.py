"""Deficit round robin in uncached prompt tokens: each key goes on until its quantum is used up.

Source: Shreedhar and Varghese, "Efficient fair queueing using deficit round robin", SIGCOMM'95; in
uncached tokens as in Dynamo's weighted queues. A quantum is overdrawn once and paid back in later
rounds. Requests of one key stay together, which their common prefix likes.
"""

from __future__ import annotations

from dataclasses import dataclass

from policies.queueing.contract import order_policy
from policies.queueing.flows import Tariff
from policies.queueing.shared import SharedByFlow, check_amount


@order_policy("drr")
@dataclass(slots=True)
class Drr(SharedByFlow):
    """Keys in a ring, within a key its users in a ring."""

    quantum: float = 4096.0  # uncached prompt tokens a round, times the weight
    width: float = 2.0  # rounds that one may be ahead of another where the prefix decides

    def __post_init__(self) -> None:
        check_amount("quantum", self.quantum, 1.0)
        check_amount("width", self.width)
        # A request costs something even where nothing is known of its prompt.
        self.open_books(Tariff(request=1.0, input=1.0, quantum=self.quantum, width=self.width))

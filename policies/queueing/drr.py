"""Deficit round robin in uncached prompt tokens: a key has its turn until its quantum is used up.

Source: Shreedhar and Varghese, "Efficient fair queueing using deficit round robin", SIGCOMM'95;
uncached tokens as in Dynamo's weighted queues. A key may exceed its quantum once; the excess is
subtracted in later rounds. Requests of one key are sent together, so a common prefix is cached.
"""

from __future__ import annotations

from dataclasses import dataclass

from policies.queueing.contract import order_policy
from policies.queueing.flows import Tariff
from policies.queueing.shared import SharedByFlow, check_amount


@order_policy("drr")
@dataclass(slots=True)
class Drr(SharedByFlow):
    """Keys take turns, and users take turns within their key."""

    # The uncached prompt tokens that a key may use in a round, times its weight.
    quantum: float = 4096.0
    # A cached prefix decides among keys, and among users, that are at most this many rounds apart.
    width: float = 2.0

    def __post_init__(self) -> None:
        check_amount("quantum", self.quantum, 1.0)
        check_amount("width", self.width)
        # A request costs 1 even if the length of its prompt is unknown.
        self.open_books(Tariff(request=1.0, input=1.0, quantum=self.quantum, width=self.width))

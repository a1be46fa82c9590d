"""One request per tenant and turn, however long it is (TNG, "LLM performance", part 1, 2025)."""

from __future__ import annotations

from dataclasses import dataclass

from policies.queueing.contract import order_policy
from policies.queueing.flows import Tariff
from policies.queueing.shared import SharedByFlow, check_amount


@order_policy("round_robin")
@dataclass(slots=True)
class RoundRobin(SharedByFlow):
    """Keys in turn, within a key its users in turn; twice the weight, two requests a turn."""

    width: float = 4.0  # turns that one may be ahead of another where the prefix decides

    def __post_init__(self) -> None:
        check_amount("width", self.width)
        # A turn is a quantum of one request: all that have not had theirs are equal.
        self.open_books(Tariff(request=1.0, quantum=1.0, width=self.width))

"""Deficit longest prefix match: of the clients with deficit left, the best cached prefix is first.

Source: "Locality-aware Fair Scheduling in LLM Serving" (arXiv 2501.14312). Each client has a
deficit counter. Uncached input tokens and weighted output tokens are subtracted from the counter.
Among the clients with deficit left, the request with the longest cached prefix goes first, so that
similar requests are sent together. When no client has any deficit left, all clients get another
quantum.
"""

from __future__ import annotations

from dataclasses import dataclass

from policies.queueing.contract import order_policy
from policies.queueing.flows import Tariff
from policies.queueing.shared import SharedByFlow, check_amount


@order_policy("dlpm")
@dataclass(slots=True)
class Dlpm(SharedByFlow):
    """Among keys with quantum left in this round, the request with the longest cached prefix goes
    first."""

    quantum: float = 32768.0  # The charge that a key may use in a round, times its weight.
    input: float = 1.0  # The charge for an uncached prompt token.
    output: float = 2.0  # The charge for an output token.

    def __post_init__(self) -> None:
        check_amount("quantum", self.quantum, 1.0)
        check_amount("input", self.input)
        check_amount("output", self.output)
        self.open_books(
            Tariff(request=1.0, input=self.input, output=self.output, quantum=self.quantum)
        )

"""Deficit longest prefix match: within this round's deficits, whose prefix is held goes first.

Source: "Locality-aware Fair Scheduling in LLM Serving" (arXiv 2501.14312). Each client has a
deficit, charged in uncached input and weighted output tokens; among clients with some left the
longest cached prefix goes first, so that similar requests go together; when nobody has any left,
all get another quantum.
"""

from __future__ import annotations

from dataclasses import dataclass

from policies.queueing.contract import order_policy
from policies.queueing.flows import Tariff
from policies.queueing.shared import SharedByFlow, check_amount


@order_policy("dlpm")
@dataclass(slots=True)
class Dlpm(SharedByFlow):
    """All that have something left of this round are equal but for their prefix."""

    quantum: float = 32768.0  # charges a round, times the weight
    input: float = 1.0  # charged for an uncached prompt token
    output: float = 2.0  # charged for an output token

    def __post_init__(self) -> None:
        check_amount("quantum", self.quantum, 1.0)
        check_amount("input", self.input)
        check_amount("output", self.output)
        self.open_books(
            Tariff(request=1.0, input=self.input, output=self.output, quantum=self.quantum)
        )

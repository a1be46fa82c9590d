"""The flow that was served the fewest tokens goes next: a virtual token counter (VTC) in a proxy.

Source: Sheng et al., "Fairness in Serving Large Language Models", OSDI'24 (arXiv 2401.00588). Each
client has a counter, charged for input tokens and, twice as much, for output tokens. The client
with the lowest counter goes next. When a client was idle, its counter is raised to the lowest
counter of the waiting clients. If two clients always have waiting requests, their service differs
by at most twice the larger of two weighted amounts: the tokens of the longest prompt, and the
tokens that run at once.

An engine charges output while it decodes. Here a request is charged its expected cost at dispatch:
uncached prompt tokens and predicted output. The charge is corrected to the true cost when the
request ends, also if the request was cancelled. `input` and `output` may be prices instead of
weights.
"""

from __future__ import annotations

from dataclasses import dataclass

from policies.queueing.contract import order_policy
from policies.queueing.flows import Tariff
from policies.queueing.shared import SharedByFlow, check_amount
from policies.registry import PolicyConfigError


@dataclass
class Fair(SharedByFlow):
    """The key with the lowest counter goes next, and within it the user with the lowest counter."""

    input: float = 1.0  # The charge for an uncached prompt token.
    output: float = 2.0  # The charge for an output token.
    # A cached prefix decides among counters that differ by at most the charge of this number of
    # prompt tokens.
    width: float = 8192.0

    def __post_init__(self) -> None:
        for option in ("input", "output", "width"):
            check_amount(option, getattr(self, option))
        if self.input == 0.0 and self.output == 0.0:
            raise PolicyConfigError("input or output must be above 0", "input")
        # The width is multiplied by the price. So it still separates flows if the price is a
        # millionth.
        width = self.width * (self.input or self.output)
        self.open_books(Tariff(input=self.input, output=self.output, width=width))


# This is not a decorator, because mypyc does not natively compile classes with unknown decorators.
order_policy("fair")(Fair)

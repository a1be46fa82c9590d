"""Who was served the fewest tokens goes next: virtual token counter (VTC), as a proxy can keep it.

Source: Sheng et al., "Fairness in Serving Large Language Models", OSDI'24 (arXiv 2401.00588): a
counter for each client, charged for input tokens and, twice as much, for output tokens; the lowest
counter goes next; who comes back is lifted to the others. Between any two clients that always wait,
service differs by at most twice the larger of the longest prompt and what runs at once, weighted.

An engine charges output as it decodes. Here a request is charged at dispatch what it is expected to
cost, uncached prompt tokens and predicted output, and the truth is settled when it ends, also when
it was cancelled. `input` and `output` may be prices instead of weights.
"""

from __future__ import annotations

from dataclasses import dataclass

from policies.queueing.contract import order_policy
from policies.queueing.flows import Tariff
from policies.queueing.shared import SharedByFlow, check_amount
from policies.registry import PolicyConfigError


@dataclass
class Fair(SharedByFlow):
    """The key with the lowest counter, of its users the one with the lowest, ties by arrival."""

    input: float = 1.0  # charged for an uncached prompt token
    output: float = 2.0  # charged for an output token
    width: float = 8192.0  # prompt tokens whose charges count as equal where the prefix decides

    def __post_init__(self) -> None:
        for option in ("input", "output", "width"):
            check_amount(option, getattr(self, option))
        if self.input == 0.0 and self.output == 0.0:
            raise PolicyConfigError("either input or output must cost something", "input")
        # In whatever money: a price of a millionth must not make everybody equal.
        width = self.width * (self.input or self.output)
        self.open_books(Tariff(input=self.input, output=self.output, width=width))


# Not as a decorator: the compiler makes no native class of a class that has one it does not know.
order_policy("fair")(Fair)

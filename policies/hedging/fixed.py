"""Sends a second copy after a fixed number of seconds, as most proxies do.

The delay does not depend on the prompt, so most copies are sent for long prompts. The policy exists
for comparison, and for operators who know the right delay. The hedging budget applies to this
policy too.
"""

from __future__ import annotations

from dataclasses import dataclass

from policies.hedging.contract import Delay, HedgingPolicy, check_number, policy
from policies.hedging.curve import Curve


@policy("fixed")
@dataclass(slots=True)
class Fixed(HedgingPolicy):
    """Sends a copy `delay_s` seconds after the dispatch. The policy needs no measured times."""

    delay_s: float = 0.5  # The delay from the dispatch to the copy, in seconds.

    def __post_init__(self) -> None:
        check_number("delay_s", self.delay_s)

    def delay(self, curve: Curve, quantile: float) -> Delay | None:
        return Delay(seconds=self.delay_s)

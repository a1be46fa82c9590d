"""A second copy for whatever is later than the quantile that the budget pays for.

Sources: Dean and Barroso, "The Tail at Scale", CACM 56(2), 2013 (hedge after the 95th percentile:
5 % extra); Finagle's BackupRequestFilter (the percentile is 1 - the extra load). Here the time is
divided by what was predicted for the prompt, and the quantile counts that only some requests may be
hedged: with the budget b and the hedgeable share h of all prefill tokens it is 1 - b/h.
"""

from __future__ import annotations

from dataclasses import dataclass

from policies.hedging.contract import Delay, HedgingPolicy, check_number, policy
from policies.hedging.curve import Curve


@policy("quantile")
@dataclass(slots=True)
class Quantile(HedgingPolicy):
    """Spends the whole budget, on the latest requests; it does not ask what a copy gains."""

    least_s: float = 0.05  # never before this

    def __post_init__(self) -> None:
        check_number("least_s", self.least_s)

    def delay(self, curve: Curve, quantile: float) -> Delay | None:
        return Delay(curve.quantile(quantile), self.least_s)

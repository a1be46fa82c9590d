"""Sends a second copy of each request that is later than the quantile that the budget pays for.

Sources: Dean and Barroso, "The Tail at Scale", CACM 56(2), 2013 (hedge after the 95th percentile:
5 % extra); Finagle's BackupRequestFilter (the percentile is 1 - the extra load). Here the time is
divided by the time predicted for the prompt. Only some requests may be hedged, so the quantile is
1 - b/h, with the budget b and the hedgeable share h of all prefill tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

from policies.hedging.contract import Delay, HedgingPolicy, check_number, policy
from policies.hedging.curve import Curve


@policy("quantile")
@dataclass(slots=True)
class Quantile(HedgingPolicy):
    """Uses the whole budget for the latest requests; it does not estimate what a copy gains."""

    least_s: float = 0.05  # The shortest delay before a copy, in seconds.

    def __post_init__(self) -> None:
        check_number("least_s", self.least_s)

    def delay(self, curve: Curve, quantile: float) -> Delay | None:
        return Delay(curve.quantile(quantile), self.least_s)

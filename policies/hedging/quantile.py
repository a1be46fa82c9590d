"""Sends a second copy of the latest requests, as many as the budget pays for.

Sources: Dean and Barroso, "The Tail at Scale", CACM 56(2), 2013 (copies after the 95th percentile
are 5 % more requests); Finagle's BackupRequestFilter (the percentile is 1 - the extra load). Here
times are divided by the time that is predicted for the prompt. Only some requests may be hedged, so
the quantile is 1 - b/h, with the budget b and the hedgeable share h of all prefill tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from policies.hedging.contract import Delay, HedgingPolicy, check_number, policy
from policies.hedging.curve import Curve


@policy("quantile")
@dataclass(slots=True)
class Quantile(HedgingPolicy):
    """Uses the whole budget for the latest requests. It does not estimate the time that a copy
    saves."""

    watches: ClassVar[bool] = True

    least_s: float = 0.05  # The shortest delay before a copy, in seconds.

    def __post_init__(self) -> None:
        check_number("least_s", self.least_s)

    def delay(self, curve: Curve, quantile: float) -> Delay | None:
        return Delay(curve.quantile(quantile), self.least_s)

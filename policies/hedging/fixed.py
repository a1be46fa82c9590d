"""A second copy after so many seconds, whatever the prompt: what most proxies can do.

Long prompts look slow to it and short ones never do. It is here to be compared with, and for who
knows the one right number; the budget holds for it, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from policies.hedging.contract import Delay, HedgingPolicy, check_number, policy
from policies.hedging.curve import Curve


@policy("fixed")
@dataclass(slots=True)
class Fixed(HedgingPolicy):
    """Asks `delay_s` seconds after the dispatch. It needs no measured times."""

    delay_s: float = 1.0

    def __post_init__(self) -> None:
        check_number("delay_s", self.delay_s)

    def delay(self, curve: Curve, quantile: float) -> Delay | None:
        return Delay(seconds=self.delay_s)

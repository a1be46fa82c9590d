"""A second copy when waiting on is the worse bet.

Three rules, of which the first is `quantile`'s:
1. never before the quantile that the budget pays for: an earlier copy would take the budget from a
   later request that is slower;
2. of all later moments the one that costs least: at delay d, in multiples of the predicted time, a
   request takes the integral of S up to d + 1 in the mean (S: the share still waited for; the copy
   takes 1), and a share S(d) of them makes others pay for a copy. While many still finish from one
   moment to the next, waiting is cheap and each finish saves a copy; behind the bulk, only those
   are left that a copy helps, and every further moment is lost. So the minimum lies where the bulk
   ends, and where there is no tail, behind everything that was seen;
3. when that moment has come, the time that the first attempt still needs (the mean of those that
   have waited as long) must exceed what the copy needs at the replica that would take it, which may
   have to prefill what the first one held in its cache.
"""

from __future__ import annotations

from dataclasses import dataclass

from policies.hedging.contract import Delay, HedgingPolicy, check_number, policy
from policies.hedging.curve import Curve


@policy("adaptive")
@dataclass(slots=True)
class Adaptive(HedgingPolicy):
    """Fires where the bulk of first tokens ends; spends less than its budget when it can."""

    least_s: float = 0.05  # never before this
    price: float = 1.0  # what a copy costs others, in predicted times; 0: the quantile alone
    margin: float = 0.5  # the gain must exceed this share of the copy's predicted time

    def __post_init__(self) -> None:
        check_number("least_s", self.least_s)
        check_number("price", self.price)
        check_number("margin", self.margin)

    def delay(self, curve: Curve | None, quantile: float) -> Delay | None:
        if curve is None:
            return None
        price = self.price
        # The earliest of equals.
        best = min(
            curve.times(curve.quantile(quantile)),
            key=lambda d: curve.area(d + 1.0) + price * curve.survival(d),
        )
        return Delay(best, self.least_s)

    def pays(self, waited_s: float, predicted_s: float, backup_s: float, curve: Curve) -> bool:
        remaining_s = predicted_s * curve.remaining(waited_s / predicted_s)
        return backup_s * (1.0 + self.margin) < remaining_s

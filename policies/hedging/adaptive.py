"""A second copy when waiting on is the worse bet.

The moment is the one that gains most for what the budget pays. With S(d) the share still waited
for at delay d, in multiples of the predicted time, a copy that takes 1 saves the integral of S from
d + 1 on, and for a share S(d) of the requests others pay for a copy. Where that is more than the
budget's share B, chance decides who gets one:

    gain(d) = min(1, B / S(d)) * (integral of S from d + 1 on - price * S(d))

While many still finish from one moment to the next, waiting is cheap and each finish saves a copy;
behind the bulk only those are left that a copy helps, and every further moment is lost. So the best
moment is where the bulk ends, whether or not the budget pays for all that are later; where there is
no tail, it is behind everything that was seen.

When that moment has come, the time that the first attempt still needs (the mean of those that have
waited as long) must exceed what the copy needs at the replica that would take it, which may have to
prefill what the first one held in its cache.
"""

from __future__ import annotations

from dataclasses import dataclass

from policies.hedging.contract import Delay, HedgingPolicy, check_number, policy
from policies.hedging.curve import Curve
from policies.hedging.gain import best_moment


@policy("adaptive")
@dataclass(slots=True)
class Adaptive(HedgingPolicy):
    """Fires where the bulk of first tokens ends; spends less than its budget when it can."""

    least_s: float = 0.05  # never before this
    price: float = 1.0  # what a copy costs others, in predicted times
    margin: float = 0.5  # the gain must exceed this share of the copy's predicted time

    def __post_init__(self) -> None:
        check_number("least_s", self.least_s)
        check_number("price", self.price)
        check_number("margin", self.margin)

    def delay(self, curve: Curve, quantile: float) -> Delay | None:
        return Delay(best_moment(curve, 1.0 - quantile, self.price), self.least_s)

    def pays(self, waited_s: float, predicted_s: float, backup_s: float, curve: Curve) -> bool:
        remaining_s = predicted_s * curve.remaining(waited_s / predicted_s)
        return backup_s * (1.0 + self.margin) < remaining_s

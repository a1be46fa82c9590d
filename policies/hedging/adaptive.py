"""Sends a second copy at the delay with the highest expected gain.

Let S(d) be the share of requests that show no content within the delay d. Times are multiples of
the predicted time. A copy takes 1 (the predicted time), so a copy after the delay d saves, in the
mean over all requests, the integral of S from d + 1 on. A share S(d) of the requests causes a copy,
which costs other requests `price`. If S(d) exceeds the budget's share B, chance decides which
requests get a copy:

    gain(d) = min(1, B / S(d)) * (integral of S from d + 1 on - price * S(d))

While many requests still finish within a short time, waiting is cheap, and each request that
finishes saves a copy. Later only the slow requests remain, and further waiting loses time. So the
best delay is the time by which most first tokens have arrived, even if the budget cannot pay for
all later requests. If no requests are much slower than the others, the best delay is longer than
every time that was seen.

When the delay has passed, a second condition must hold for a copy to be sent. The expected
remaining time of the first attempt (the mean of the attempts that have waited as long) must exceed
the time that the copy needs at its replica. That replica may have to prefill tokens that the first
replica had in its cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from policies.hedging.contract import Delay, HedgingPolicy, check_number, policy
from policies.hedging.curve import Curve
from policies.hedging.gain import best_moment


@policy("adaptive")
@dataclass(slots=True)
class Adaptive(HedgingPolicy):
    """Sends a copy after the time by which most first tokens arrive. May use less than its
    budget."""

    watches: ClassVar[bool] = True

    least_s: float = 0.05  # The shortest delay before a copy, in seconds.
    price: float = 1.0  # What a copy costs other requests, in multiples of the predicted time.
    margin: float = 0.5  # The gain must exceed this share of the copy's predicted time.

    def __post_init__(self) -> None:
        check_number("least_s", self.least_s)
        check_number("price", self.price)
        check_number("margin", self.margin)

    def delay(self, curve: Curve, quantile: float) -> Delay | None:
        return Delay(best_moment(curve, 1.0 - quantile, self.price), self.least_s)

    def pays(self, waited_s: float, predicted_s: float, backup_s: float, curve: Curve) -> bool:
        remaining_s = predicted_s * curve.remaining(waited_s / predicted_s)
        return backup_s * (1.0 + self.margin) < remaining_s

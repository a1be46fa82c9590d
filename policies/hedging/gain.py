"""Finds the delay of a second copy with the highest gain. `adaptive.py` explains the formula.

    gain(d) = min(1, paid / S(d)) * (integral of S from d + 1 on - price * S(d))

S(d) is the share of requests that show no content within d. This is a separate module because it is
compiled. Once a second for each model, all times of a curve are evaluated while a request waits for
the result.
"""

from __future__ import annotations

from math import inf

from policies.hedging.curve import Curve


def best_moment(curve: Curve, paid: float, price: float) -> float:
    """Return the best delay in multiples of the predicted time; the earliest of equally good
    delays.

    `paid`: the share of the requests for which the budget pays a copy; `price`: what a copy costs
    other requests, in multiples of the predicted time.
    """
    best, most = 0.0, -inf
    for moment in curve.times(0.0):
        late = curve.survival(moment)
        gain = curve.mean - curve.area(moment + 1.0) - price * late
        if late > paid:
            gain *= paid / late
        if gain > most:
            best, most = moment, gain
    return best

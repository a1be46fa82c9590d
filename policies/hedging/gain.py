"""The moment for a second copy that gains most. `adaptive.py` says why this is the gain.

    gain(d) = min(1, paid / S(d)) * (integral of S from d + 1 on - price * S(d))

S(d) is the share still waited for at d. This is a file of its own because it is compiled: once a
second for each model it looks at every moment of a curve while a request waits.
"""

from __future__ import annotations

from math import inf

from policies.hedging.curve import Curve


def best_moment(curve: Curve, paid: float, price: float) -> float:
    """In multiples of the predicted time; the earliest of equals.

    `paid`: the share of the requests for which the budget pays a copy; `price`: what a copy costs
    others, in predicted times.
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

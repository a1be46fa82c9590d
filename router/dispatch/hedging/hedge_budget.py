"""The budget for hedges: a token bucket to which every request adds a share of its prompt tokens.

Each request deposits the share b of its uncached prompt tokens. Each hedge, which is a second copy
of a request, withdraws its own uncached prompt tokens, times the price of a copy at its replica
(`copy_price.py`): 1 under load, 0 at an idle replica. Cached tokens are free. Every request and
every copy counts as at least one token, so copies stay a share of the requests even if tokens are
not counted. The bucket begins empty and is never overdrawn, so at any time

    paid tokens of copies <= b * tokens of all requests.

The size of the bucket is a few median prompts, or the deposits of thirty seconds if that is more.
So the deposits of an hour without copies cannot be used in one second. The deposits of ten seconds,
as in Finagle's RetryBudget, pay for too few copies. If prompts share prefixes, a copy at a replica
without the prefix costs several times the deposit of its request, and late requests come in groups.

The budget also measures h, the share of the tokens that belong to requests that may be hedged. With
the share b, the budget pays for copies of a part b/h of the requests that may be hedged.

Must never: read a clock, or let the bucket become negative.
"""

from __future__ import annotations

from math import exp
from typing import Final

PROMPTS: Final = 4.0  # The bucket holds at least this many median prompts.
HOLD_S: Final = 30.0  # The bucket holds the deposits of at least this many seconds.
MEASURE_S: Final = 30.0  # The share h is measured over this many seconds.
_STEP: Final = 1.05  # Factor by which one prompt changes the estimate of the median.

# The limits of `HedgeBudget.quantile`. Copies of more than half of the requests are useless,
# whatever the budget. A window of some thousand samples cannot estimate a quantile beyond its
# highest sample.
QUANTILE_LEAST: Final = 0.5
QUANTILE_MOST: Final = 0.999


class HedgeBudget:
    """The token bucket of one router. Tokens are uncached prompt tokens."""

    def __init__(self, share: float) -> None:
        self.share = share  # The share b, 0 to 1.
        self.level = 0.0
        self._median = 0.0  # Rough median of the tokens of recent requests.
        self._recent = 0.0  # Tokens that were deposited recently.
        self._all = 0.0  # Tokens of all recent requests.
        self._hedgeable = 0.0  # Tokens of those recent requests that may be hedged.

    def adopt(self, share: float) -> None:
        """Apply another share from a reload."""
        if share < self.share:
            self.level = 0.0  # Deposits with the larger share are dropped.
        self.share = share

    def deposit(self, tokens: int, hedgeable: bool) -> None:
        """Add the deposit for a request that is dispatched."""
        cost = float(tokens) if tokens > 1 else 1.0
        paid = cost * self.share
        self._all += cost
        if hedgeable:
            self._hedgeable += cost
        if cost > self._median:
            self._median = self._median * _STEP if self._median else cost
        else:
            self._median /= _STEP
        self._recent += paid
        self._add(paid)

    def fits(self, tokens: int, price: float = 1.0) -> bool:
        """Whether the bucket has enough tokens for a copy of this price, 0 to 1."""
        return price * max(tokens, 1) <= self.level

    def take(self, tokens: int, price: float = 1.0) -> None:
        """Withdraw the tokens of a copy from the budget. `fits` must have returned True."""
        self.level = max(0.0, self.level - price * max(tokens, 1))

    def give_back(self, tokens: int, price: float = 1.0) -> None:
        """Refund the tokens of a copy that never reached a replica."""
        self._add(price * max(tokens, 1))

    def _add(self, tokens: float) -> None:
        most = max(PROMPTS * self._median, self._recent)
        self.level = min(self.level + tokens, most)

    def tick(self, elapsed_s: float) -> None:
        """Reduce the sums of recent tokens: `elapsed_s` seconds have passed since the last tick."""
        self._recent *= exp(-elapsed_s / HOLD_S)
        fading = exp(-elapsed_s / MEASURE_S)
        self._all *= fading
        self._hedgeable *= fading

    @property
    def hedgeable_share(self) -> float:
        """h: the share of recent tokens that belong to requests that may be hedged; 0 to 1."""
        return self._hedgeable / self._all if self._all else 0.0

    @property
    def quantile(self) -> float:
        """1 - b/h: the share of hedgeable requests for which the budget cannot pay a copy."""
        share = self.hedgeable_share
        if self.share >= share * (1.0 - QUANTILE_LEAST):
            return QUANTILE_LEAST
        return min(1.0 - self.share / share, QUANTILE_MOST)

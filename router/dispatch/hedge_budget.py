"""What copies may cost: a bucket of prefill tokens that every request pays a share of.

Each request deposits the share b of its uncached prompt tokens, each copy withdraws its own; cached
tokens are free, but nothing costs less than one token, so that copies stay a share of the requests
where nobody counts tokens. The bucket begins empty and is never overdrawn, so at any time

    tokens of copies <= b * tokens of all requests.

It holds at most a few median prompts, or what ten seconds deposit where that is more (Finagle's
RetryBudget: ten seconds): what a quiet hour saved cannot be spent in one bad second.

It also measures whose tokens they are: with b and the share h of the requests that may be hedged,
copies for a share b/h of those are what the budget pays for.

Must never: look at a clock, or be negative.
"""

from __future__ import annotations

from math import exp
from typing import Final

PROMPTS: Final = 4.0  # median prompts that the bucket holds at least
HOLD_S: Final = 10.0  # ... or so much time's deposits
MEASURE_S: Final = 30.0  # over which the hedgeable share is measured
_STEP: Final = 1.05  # of the median's estimate towards each prompt

# Copies for most requests help nobody, whatever the budget; and beyond the highest quantile that a
# window of some thousand samples tells, there is only noise.
QUANTILE_LEAST: Final = 0.5
QUANTILE_MOST: Final = 0.999


class HedgeBudget:
    """The bucket of one router. Tokens are uncached prompt tokens."""

    def __init__(self, share: float) -> None:
        self.share = share  # b, 0 to 1
        self.level = 0.0
        self._median = 0.0  # of the prompts of late, roughly
        self._recent = 0.0  # tokens deposited lately
        self._all = 0.0  # tokens of all requests lately ...
        self._hedgeable = 0.0  # ... and of those that may be hedged

    def adopt(self, share: float) -> None:
        """Another share from a reload."""
        if share < self.share:
            self.level = 0.0  # what was saved at the higher one is not promised any more
        self.share = share

    def deposit(self, tokens: int, hedgeable: bool) -> None:
        """A request leaves."""
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

    def fits(self, tokens: int) -> bool:
        """Whether a copy of so many tokens can be paid."""
        return max(tokens, 1) <= self.level

    def take(self, tokens: int) -> None:
        """A copy leaves, for which `fits` was true."""
        self.level = max(0.0, self.level - max(tokens, 1))

    def give_back(self, tokens: int) -> None:
        """It never reached a replica."""
        self._add(float(max(tokens, 1)))

    def _add(self, tokens: float) -> None:
        most = max(PROMPTS * self._median, self._recent)
        level = self.level + tokens
        self.level = min(most, level)

    def tick(self, elapsed_s: float) -> None:
        """So much time has passed since the last tick."""
        self._recent *= exp(-elapsed_s / HOLD_S)
        fading = exp(-elapsed_s / MEASURE_S)
        self._all *= fading
        self._hedgeable *= fading

    @property
    def hedgeable_share(self) -> float:
        """h: of all tokens lately, those of requests that may be hedged; 0 to 1."""
        return self._hedgeable / self._all if self._all else 0.0

    @property
    def quantile(self) -> float:
        """1 - b/h: the share of hedgeable requests for which the budget need not pay a copy."""
        share = self.hedgeable_share
        if self.share >= share * (1.0 - QUANTILE_LEAST):
            return QUANTILE_LEAST
        return min(1.0 - self.share / share, QUANTILE_MOST)

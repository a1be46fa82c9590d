"""What first contents take by assumption, until a model's own answers are known.

After a start, nothing is known of any model, but urgent requests need protection in the first
minute, too. So learning begins with an assumed line and an assumed curve. The line counts as one
sample. The curve counts as `ttfts.WARM` samples; each real sample replaces one of them.

The lines are those of the slowest engine in `emulator/timing.py`. A line that is too slow delays
copies; a line that is too fast sends copies of requests that are not late.

- Streams: Bloom-176B on 8 A100 prefills in 65 ms + 0.19 ms a token. A prefill may have to wait for
  one decode step before, 48 ms.
- Whole answers show nothing before their last token. The median answer has 129 tokens (Azure's
  conversation trace of 2023, Splitwise, ISCA 2024), and a decode step takes 48 ms.

The curves:

- Streams: 95 % take between half and twice what the line says. 5 % take 3 to 10 times as long:
  "The Tail at Scale" (CACM 56(2), 2013) hedges from the 95th percentile on.
- Whole answers differ in length: lognormal with sigma 1, from the same trace (mean 211 tokens).

Must never: change.
"""

from __future__ import annotations

from math import exp
from statistics import NormalDist
from typing import Final

from router.dispatch.ratios import BINS, bin_of

_PREFILL_S: Final = 0.11
_TOKEN_S: Final = 2e-4
_ANSWER_S: Final = 129 * 0.048
_SIGMA: Final = 1.0  # of whole answers
_DRAWN: Final = 200  # quantiles that stand for a distribution


class Prior:
    """A line and a curve. Seconds; tokens are uncached prompt tokens."""

    def __init__(self, base_s: float, token_s: float, ratios: list[float]) -> None:
        """`ratios`: first contents over the line, each as likely as the others."""
        self.base_s = base_s
        self.token_s = token_s
        self.shares = [0.0] * BINS  # of first contents in each bin of `ratios.Ratios`
        for ratio in ratios:
            self.shares[bin_of(ratio)] += 1.0 / len(ratios)


def _even(low: float, high: float, count: int) -> list[float]:
    """So many, evenly between the logarithms of two numbers."""
    return [low * (high / low) ** ((n + 0.5) / count) for n in range(count)]


def _lognormal(sigma: float, count: int) -> list[float]:
    normal = NormalDist(0.0, sigma)
    return [exp(normal.inv_cdf((n + 0.5) / count)) for n in range(count)]


STREAMS: Final = Prior(
    _PREFILL_S,
    _TOKEN_S,
    _even(0.5, 2.0, _DRAWN * 95 // 100) + _even(3.0, 10.0, _DRAWN * 5 // 100),
)
WHOLES: Final = Prior(_PREFILL_S + _ANSWER_S, _TOKEN_S, _lognormal(_SIGMA, _DRAWN))

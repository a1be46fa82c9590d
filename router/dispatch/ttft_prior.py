"""What first contents take by assumption, until a model's own have been seen.

A model that nobody has asked for since the start has shown nothing yet, and its urgent requests
want protection in the first minute, too. So learning begins with a line and a curve that hold for
most models. They count as one sample of the line and as `ttfts.WARM` samples of the curve, of which
each sample seen replaces one.

The lines are of the slower ones among measured engines (`emulator/timing.py`): an assumption that
is too slow sends copies late, one that is too fast sends copies of what is not late at all.

- Streams: a prefill of Bloom-176B on 8 A100, which takes 65 ms and 0.19 ms a token, may begin one
  step of its batch later, 48 ms.
- Whole answers show nothing before their last token. The median answer has 129 tokens (Azure's
  conversation trace of 2023, Splitwise, ISCA 2024), and a step of a large model takes 48 ms.

The curves:

- Streams: the bulk lies between half and twice the line, as machines and batches differ. One in
  twenty takes 3 to 10 times as long: in "The Tail at Scale" (CACM 56(2), 2013) the 95th percentile
  is where the tail begins.
- Whole answers differ as their lengths do: lognormal with the sigma 1 of the same trace, whose mean
  is 211 tokens.

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

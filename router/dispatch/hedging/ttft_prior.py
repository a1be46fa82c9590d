"""The assumed time to first content, used until a model's own answers are known.

After a start, no answer of any model is known, but urgent requests may need a copy in the first
minute, too. So learning begins with an assumed line, which predicts the time from the uncached
prompt tokens, and an assumed distribution (curve) of the ratios of the true times to that line. The
line counts as one sample. The curve counts as `ttfts.WARM` samples; each real sample replaces one
of them.

The assumed lines are those of the slowest engine in `emulator/core/timing.py`. A line that is too
slow delays copies; a line that is too fast sends copies of requests that are not late.

- Streams: on 8 A100 GPUs, Bloom-176B takes 65 ms plus 0.19 ms per token for a prefill. Before the
  prefill, a decode step of 48 ms may have to end.
- Answers that are not streamed show nothing before their last token. The median answer has 129
  tokens (Azure's conversation trace of 2023, Splitwise, ISCA 2024). A decode step takes 48 ms.

The assumed distributions (curves):

- Streams: 95 % take between half and twice the time that the line predicts, and 5 % take 3 to 10
  times as long. The 95th percentile is where "The Tail at Scale" (CACM 56(2), 2013) begins to
  hedge.
- Whole answers: a lognormal distribution with sigma 1, because answers differ in length (the same
  trace has a mean of 211 tokens).

Must never: change while the router runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import erf, log, sqrt
from typing import Final

from router.dispatch.hedging.ratios import BINS, UPPER, bin_of

_PREFILL_S: Final = 0.11
_TOKEN_S: Final = 2e-4
_ANSWER_S: Final = 129 * 0.048
_SIGMA: Final = 1.0  # The sigma of the lognormal distribution for whole answers.
_DRAWN: Final = 200  # Number of ratios by which the distribution of streams is represented.


class Prior:
    """An assumed line of times to first token, and an assumed curve of the ratios to that line.

    Times are seconds; tokens are uncached prompt tokens.
    """

    def __init__(self, base_s: float, token_s: float, shares: list[float]) -> None:
        """`shares`: the share of first contents in each bin of `ratios.Ratios`; their sum is 1."""
        self.base_s = base_s
        self.token_s = token_s
        self.shares = shares


def _even(low: float, high: float, count: int) -> list[float]:
    """Return `count` ratios between `low` and `high` with equal logarithmic distances."""
    return [low * (high / low) ** ((n + 0.5) / count) for n in range(count)]


def _counted(ratios: Sequence[float]) -> list[float]:
    """Return the share of each bin, if all `ratios` are equally likely."""
    shares = [0.0] * BINS
    for ratio in ratios:
        shares[bin_of(ratio)] += 1.0 / len(ratios)
    return shares


def _lognormal(sigma: float) -> list[float]:
    """Return the share of each bin for a lognormal distribution with median 1. The last bin has
    all larger values."""
    below = [0.5 * (1.0 + erf(log(upper) / (sigma * sqrt(2.0)))) for upper in UPPER[:-1]]
    return [high - low for low, high in zip([0.0, *below], [*below, 1.0], strict=True)]


STREAMS: Final = Prior(
    _PREFILL_S,
    _TOKEN_S,
    _counted(_even(0.5, 2.0, _DRAWN * 95 // 100) + _even(3.0, 10.0, _DRAWN * 5 // 100)),
)
WHOLES: Final = Prior(_PREFILL_S + _ANSWER_S, _TOKEN_S, _lognormal(_SIGMA))

"""The learned times to first content of one model: a line predicts them, a curve shows the error.

Streams and whole answers have separate objects, because a whole answer shows nothing before its
last token. The line and the curve begin with an assumption (`ttft_prior.py`), the prior, which
loses weight as samples come.

A ratio is a measured time divided by the time that the line predicts. All ratios use the current
line, not the line at the dispatch. In the first seconds the line may change by large factors. With
old lines, the error of the line would seem to be the variation of the model's times.

Must never: grow with the number of requests, or compute the curve more than once a second. This
computation takes about 0.04 ms (compiled), and delays a request.
"""

from __future__ import annotations

from typing import Final

from policies.hedging.curve import Curve
from router.core.relative_fit import FIRST, SHORTEST_S, RelativeFit
from router.dispatch.hedging.ratios import Ratios
from router.dispatch.hedging.ttft_prior import STREAMS, WHOLES
from router.wire.sweep import NEVER

# The time constant of the line's scale, in seconds. It is longer than that of the speeds that
# policies read: while a whole pool becomes slow, the requests at its slowest replicas are late.
SCALE_S: Final = 30.0
WARM: Final = 20  # Number of samples from which on the curve does not depend on the prior.
FORGET_S: Final = 300.0  # Seconds without a request after which all earlier samples are forgotten.
REFRESH_S: Final = 1.0


class Ttfts:
    """The learned times to first content of one model.

    Times are monotonic seconds; `speed` is the replica's factor (`speed.py`).
    """

    def __init__(self, now: float, is_streamed: bool) -> None:
        self.is_streamed = is_streamed
        prior = STREAMS if is_streamed else WHOLES
        self._fit = RelativeFit([prior.base_s, prior.token_s], SCALE_S)
        # The fitted line: these seconds, and the seconds per token.
        self._base_s = prior.base_s
        self._token_s = prior.token_s
        self.answers = 0  # Number of learned answers.
        self._prior = prior
        self._ratios = Ratios(now)
        self.curve: Curve = self._ratios.curve(prior.shares, WARM)
        self.used_at = now
        self.refresh_at = now + REFRESH_S  # Time from which on `refresh` is due.
        # The plan of the policy: a copy is considered when both `ratio` times the prediction and
        # `seconds` have passed. NEVER: no copy is sent.
        self.ratio = NEVER
        self.seconds = NEVER

    @property
    def is_cold(self) -> bool:
        """Whether the fitted line still depends on the prior."""
        return self.answers < FIRST

    @property
    def is_warm(self) -> bool:
        """Whether enough was observed: neither the fitted line of times to first token nor their
        survival curve depends on the prior any more."""
        return not self.is_cold and self._ratios.shown >= WARM

    def predict(self, tokens: int, speed: float) -> float:
        """Return the predicted seconds to the first content.

        `tokens`: uncached prompt tokens that wait at the replica, including the request's own.
        `speed`: the replica's factor.
        """
        return max(SHORTEST_S, self._base_s + self._token_s * tokens) * speed

    def shown(self, tokens: int, took_s: float, speed: float, now: float) -> None:
        """Learn from a first content. `tokens`: as in `predict`, at the time of the dispatch."""
        took_s /= speed
        # Without enough answers, the line must include this answer before the ratio is computed.
        if self.is_cold:
            self._learn(tokens, took_s, now)
            self._ratios.add(took_s / self.predict(tokens, 1.0))
        else:
            self._ratios.add(took_s / self.predict(tokens, 1.0))
            self._learn(tokens, took_s, now)
        self.answers += 1

    def cut(self, tokens: int, waited_s: float, speed: float, is_silent: bool, now: float) -> None:
        """Learn from an attempt that ended after `waited_s` without content.

        `is_silent`: the replica hung, so the wait shows nothing about the model's times. A replica
        that hangs in a small fleet gets so many requests that the line would follow their waits.
        """
        waited_s /= speed
        predicted_s = self.predict(tokens, 1.0)
        self._ratios.add_cut(waited_s / predicted_s)
        if not is_silent and waited_s > predicted_s:
            self._learn(tokens, waited_s, now)

    def _learn(self, tokens: int, seconds: float, now: float) -> None:
        fit = self._fit
        if not fit.is_due(now):
            return
        fit.learn([1.0, float(tokens)], seconds, now)
        self._base_s = fit.coefficient(0)
        self._token_s = fit.coefficient(1)

    def refresh(self, now: float) -> None:
        """Compute the curve again. Call this method from `refresh_at` on; then make a new plan."""
        self.refresh_at = now + REFRESH_S
        if now - self.used_at > FORGET_S:
            self._ratios = Ratios(now)
        self.used_at = now
        self._ratios.slide(now)
        missing = max(0, WARM - self._ratios.shown)
        self.curve = self._ratios.curve(self._prior.shares, missing)

    def outdate(self) -> None:
        """Let the next request compute the curve again, because a new policy needs a new plan."""
        self.refresh_at = 0.0

"""Predicts the time to first content by a line through the latest answers, robust to outliers.

    predicted_s = base_s + token_s * tokens

`tokens` are the uncached prompt tokens that wait at the replica, including the request's own.

The line is fitted to the last 256 answers by least absolute deviations. Each deviation is relative
to the prediction, so that long prompts do not count for more than short ones. The fitted line
behaves like a median: if one answer in twenty takes ten times as long, the line moves as much as if
that answer took twice as long. The line is computed by iteratively reweighted least squares
(Schlossmacher, JASA 68, 1973). Each computation starts from the previous line and does a few
rounds, so that its cost is bounded.

Before there are enough answers for a line, the assumed line (the prior) is multiplied by one
factor: the median ratio of the answers to that line. The prior itself counts as one more answer,
with the ratio 1. So a model that is ten times as slow as assumed is predicted correctly after two
answers at most.

An attempt that ended without content would have taken longer than it waited: it is a censored
sample. A median depends only on the side on which a sample lies. So a censored sample above the
line counts like any other sample there. A censored sample below the line contains no information
and is left out (Powell, "Least absolute deviations estimation for the censored regression model",
J. Econometrics 25, 1984).

Must never: read a clock, or predict 0.
"""

from __future__ import annotations

from typing import Final

SAMPLES: Final = 256  # Maximum number of kept samples.
LEAST: Final = 8  # Minimum number of answers for a fitted line.
SHORTEST_S: Final = 1e-4  # The shortest prediction in seconds.
LONGEST_S: Final = 1e6  # The longest wait in seconds; a longer wait counts as this one.
# Number of iterations of each computation, which starts from a line that is one second old.
_ROUNDS: Final = 3
_FIRST_ROUNDS: Final = 10
# The smallest relative deviation. A smaller deviation counts as this one; otherwise its weight
# would become too large.
_CLOSE: Final = 0.02
# Minimum relative spread of the numbers of tokens; below this spread, no slope can be determined.
_SPREAD: Final = 1e-4


class TtftFit:
    """The fitted line of one model's times to first token.

    Times are seconds; tokens are uncached prompt tokens.
    """

    def __init__(self, base_s: float, token_s: float) -> None:
        """`base_s`, `token_s`: the prior; this line is used until there are answers."""
        self.base_s = base_s
        self.token_s = token_s
        # Number of answers, counted up to LEAST; from then on the prior is not used.
        self.answers = 0
        self._prior_base_s = base_s
        self._prior_token_s = token_s
        self._tokens: list[float] = []
        self._took: list[float] = []
        self._is_cut: list[bool] = []
        self._at: list[float] = []
        self._next = 0  # The index of the next sample, once there are `SAMPLES` samples.

    def predict(self, tokens: int) -> float:
        """Return the predicted seconds from the dispatch to the first content."""
        predicted = self.base_s + self.token_s * tokens
        return max(SHORTEST_S, predicted)

    def add(self, tokens: int, took_s: float, now: float) -> None:
        """Add the time to first content of one answer."""
        self._add(tokens, took_s, now, False)
        if self.answers < LEAST:
            self.answers += 1
            if self.answers < LEAST:
                self._scale()
            else:
                self._fit(0.0, _FIRST_ROUNDS)

    def add_cut(self, tokens: int, waited_s: float, now: float) -> None:
        """Add an attempt that ended without content."""
        if waited_s > self.predict(tokens):
            self._add(tokens, waited_s, now, True)
            if self.answers < LEAST:
                self._scale()

    def refit(self, since: float) -> None:
        """Fit the line again to the samples since `since`; fewer than `LEAST` change nothing."""
        if self.answers >= LEAST:
            self._fit(since, _ROUNDS)

    def _add(self, tokens: int, took_s: float, now: float, is_cut: bool) -> None:
        took_s = min(max(took_s, SHORTEST_S), LONGEST_S)
        if len(self._at) < SAMPLES:
            self._tokens.append(float(tokens))
            self._took.append(took_s)
            self._is_cut.append(is_cut)
            self._at.append(now)
            return
        index = self._next
        self._tokens[index] = float(tokens)
        self._took[index] = took_s
        self._is_cut[index] = is_cut
        self._at[index] = now
        self._next = (index + 1) % SAMPLES

    def _scale(self) -> None:
        """Scale the prior's line by the median ratio of the latest samples to this line."""
        base_s, token_s = self._prior_base_s, self._prior_token_s
        ratios = [1.0]
        for index in range(max(0, len(self._at) - LEAST + 1), len(self._at)):
            line = max(base_s + token_s * self._tokens[index], SHORTEST_S)
            ratios.append(self._took[index] / line)
        ratios.sort()
        # Of two middle values, the upper one is used: too long a prediction does less harm.
        scale = ratios[len(ratios) // 2]
        self.base_s = base_s * scale
        self.token_s = token_s * scale

    def _fit(self, since: float, rounds: int) -> None:
        xs: list[float] = []
        ys: list[float] = []
        cut: list[bool] = []
        for index in range(len(self._at)):
            if self._at[index] >= since:
                xs.append(self._tokens[index])
                ys.append(self._took[index])
                cut.append(self._is_cut[index])
        if len(xs) < LEAST:
            return
        for _ in range(rounds):
            self._step(xs, ys, cut)

    def _step(self, xs: list[float], ys: list[float], cut: list[bool]) -> None:
        """Do one weighted least squares step, without a negative base or a negative slope."""
        base_s, token_s = self.base_s, self.token_s
        w = wx = wy = wxx = wxy = 0.0
        for index in range(len(xs)):
            x, y = xs[index], ys[index]
            line = max(base_s + token_s * x, SHORTEST_S)
            off = y / line - 1.0
            if off < 0.0:
                if cut[index]:
                    continue
                off = -off
            weight = 1.0 / (line * line * max(off, _CLOSE))
            w += weight
            wx += weight * x
            wy += weight * y
            wxx += weight * x * x
            wxy += weight * x * y
        if w <= 0.0:
            return  # No sample can be used: all are censored samples below the line.
        spread = w * wxx - wx * wx
        # If all prompts have similar lengths, only the base can be determined.
        if spread > _SPREAD * w * wxx:
            token_s = max(0.0, (w * wxy - wx * wy) / spread)
        base_s = (wy - token_s * wx) / w
        if base_s < 0.0:
            base_s = 0.0
            token_s = wxy / wxx
        self.base_s = base_s
        self.token_s = token_s

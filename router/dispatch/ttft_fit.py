"""What a first content takes: a line through the latest answers that stragglers do not bend.

    predicted_s = base_s + token_s * (uncached prompt tokens that wait at the replica, its own too)

fitted to the last 256 answers by least absolute deviations, each relative to what is
predicted there, so that long prompts do not count for more than short ones. The line is a median:
one answer in twenty that takes ten times as long moves it as much as one that takes twice as long.
Computed by iteratively reweighted least squares (Schlossmacher, JASA 68, 1973) from the line
before.

An attempt that was cut short has waited for a while and would have taken longer. A median asks only
on which side of it a sample lies, so one that was cut above the line counts like any other there
(Powell, "Least absolute deviations estimation for the censored regression model", J. Econometrics
25, 1984), and one that was cut below it says nothing and is left out.

Must never: look at a clock, or predict 0 once it has predicted anything.
"""

from __future__ import annotations

from typing import Final

SAMPLES: Final = 256  # the latest, at most
LEAST: Final = 8  # fewer make no line
SHORTEST_S: Final = 1e-4  # no prediction is below this
LONGEST_S: Final = 1e6  # a longer wait counts as this
_ROUNDS: Final = 3  # from a line that is one second old
_FIRST_ROUNDS: Final = 10
_CLOSE: Final = 0.02  # relative deviations below this count alike, or the weights would explode
_SPREAD: Final = 1e-4  # of the tokens' squares; below it there is no slope to be found


class TtftFit:
    """The line of one model. Times are seconds, tokens uncached prompt tokens."""

    def __init__(self) -> None:
        self.base_s = 0.0
        self.token_s = 0.0
        self.is_fitted = False
        self._tokens: list[float] = []
        self._took: list[float] = []
        self._at: list[float] = []
        self._next = 0  # where the next sample goes, once there are `SAMPLES`

    def predict(self, tokens: int) -> float:
        """Seconds from the dispatch to the first content; 0: nobody knows."""
        if not self.is_fitted:
            return 0.0
        predicted = self.base_s + self.token_s * tokens
        return max(SHORTEST_S, predicted)

    def add(self, tokens: int, took_s: float, now: float) -> None:
        """One answer."""
        at = self._at
        if len(at) < SAMPLES:
            self._tokens.append(float(tokens))
            self._took.append(took_s)
            at.append(now)
            return
        index = self._next
        self._tokens[index] = float(tokens)
        self._took[index] = took_s
        at[index] = now
        self._next = (index + 1) % SAMPLES

    def add_cut(self, tokens: int, waited_s: float, now: float) -> None:
        """One that was cut short."""
        if waited_s > self.predict(tokens):
            self.add(tokens, waited_s, now)

    def refit(self, since: float) -> None:
        """Draw the line anew through what came since then. With too little it stays as it is."""
        xs: list[float] = []
        ys: list[float] = []
        for index in range(len(self._at)):
            if self._at[index] >= since:
                xs.append(self._tokens[index])
                ys.append(min(max(self._took[index], SHORTEST_S), LONGEST_S))
        if len(xs) < LEAST:
            return
        rounds = _ROUNDS
        if not self.is_fitted:
            rounds = _FIRST_ROUNDS
            self._step(xs, ys, is_first=True)
            self.is_fitted = True
        for _ in range(rounds):
            self._step(xs, ys, is_first=False)

    def _step(self, xs: list[float], ys: list[float], *, is_first: bool) -> None:
        """One weighted least squares, with neither a negative base nor a negative slope.

        Without a line so far, deviations are relative to the samples themselves: a straggler then
        counts for little.
        """
        base_s, token_s = self.base_s, self.token_s
        w = wx = wy = wxx = wxy = 0.0
        for index in range(len(xs)):
            x, y = xs[index], ys[index]
            if is_first:
                weight = 1.0 / (y * y)
            else:
                line = max(base_s + token_s * x, SHORTEST_S)
                off = abs(y / line - 1.0)
                weight = 1.0 / (line * line * max(off, _CLOSE))
            w += weight
            wx += weight * x
            wy += weight * y
            wxx += weight * x * x
            wxy += weight * x * y
        spread = w * wxx - wx * wx
        if spread > _SPREAD * w * wxx:  # else prompts are all alike: only the base can be told
            token_s = max(0.0, (w * wxy - wx * wy) / spread)
        base_s = (wy - token_s * wx) / w
        if base_s < 0.0:
            base_s = 0.0
            token_s = wxy / wxx
        self.base_s = base_s
        self.token_s = token_s

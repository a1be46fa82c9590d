"""Learns to predict a time as a weighted sum of features. Errors are relative to the actual time.

    predicted_s = scale * sum of shape[j] * basis[j] * feature[j]

`basis` has the assumed seconds per unit of each feature, so `shape` and `scale` are 1 before any
sample. `scale` and `shape` are learned at different speeds:

- `scale` follows a change of the engine's speed. Each sample moves it by a fraction of the sample's
  relative residual, so that `scale` is about the mean over the last `SCALE_S` seconds. A factor of
  two is learned within half a minute, at any rate of samples above one per three seconds. All
  samples count equally: a sample that follows a long pause has no higher weight, because a slow
  answer itself makes the pause before it.
- `shape` tells which part of the time each feature causes. It is fitted by least squares to the
  samples of about the last `SHAPE_S` seconds, each relative to its prediction; older samples are
  forgotten exponentially. The normal equations contain only ratios to the prediction, so a change
  of `scale` does not invalidate them. A ridge term keeps coefficients that the samples do not
  determine close to their first values.

No coefficient is ever negative. The normal equations are solved by coordinate descent, which starts
from the previous solution and limits each coefficient to at least 0. Each sample costs two sweeps
over the coefficients, O(features^2).

The residual of a sample is relative to its actual time, as the error that users see. It counts for
no more than `HUBER`, and for no more than `HUBER_SPREADS` times the usual residual (`spread`), in
`scale` and in `shape` (Huber's loss). So stragglers do not change the fit. If the speed changes,
all residuals are large, and the limit grows within a few samples. `scale` and `shape` must have the
same loss; otherwise they would drift in opposite directions.

The engine may be faster or slower than assumed by any factor, so the first samples have no limit.
Instead, they set `scale` to the median of their ratios to the assumption. The assumption counts as
one more sample, with the ratio 1.

Must never: read a clock, keep a sample, or return a negative coefficient.
"""

from __future__ import annotations

from bisect import insort
from math import exp
from typing import Final

SCALE_S: Final = 8.0
SHAPE_S: Final = 120.0
# The time since the last sample counts as at most this many seconds. So, at low rates, samples are
# forgotten more slowly: the effective number of samples is at least SCALE_S / SCALE_GAP_S in the
# scale, and SHAPE_S / SHAPE_GAP_S in the shape.
SCALE_GAP_S: Final = 3.0
SHAPE_GAP_S: Final = 2.0
# A sample that comes sooner after the previous one is not learned. 20 samples per second suffice,
# and the cost of learning does not grow with the rate of requests.
LEAST_GAP_S: Final = 0.05
# For this many first samples, the scale is the median of their ratios to the first coefficients.
FIRST: Final = 8
UNFITTED: Final = 2  # Number of first samples that the shape ignores: their scale may be wrong.
# The largest relative residual that counts, and the same as a multiple of the usual residual.
HUBER: Final = 0.5
HUBER_SPREADS: Final = 1.25
# The usual residual is a mean, in which one sample counts for at most SPREADS_MOST times the mean.
SPREAD_LEAST: Final = 0.05
SPREAD_WEIGHT: Final = 0.1
SPREADS_MOST: Final = 6.0
GAP_WEIGHT: Final = 0.1  # Weight of one gap in the mean gap.
# Weight of the first shape in the fit, compared with a weight of 1 for each sample. It is the
# square of a sample's relative error, divided by the square of the shape's relative uncertainty.
RIDGE: Final = 0.05
SWEEPS: Final = 2
# The shortest and the longest time in seconds that is learned; other times count as these.
SHORTEST_S: Final = 1e-5
LONGEST_S: Final = 1e5


class RelativeFit:
    """The learned coefficients of one weighted sum. Times are in seconds."""

    __slots__ = (
        "_at",
        "_basis",
        "_first_scale",
        "_firsts",
        "_gap_s",
        "_moments",
        "_prior",
        "_scale_s",
        "_shape",
        "_shares",
        "_targets",
        "samples",
        "scale",
        "spread",
    )

    def __init__(self, basis: list[float], scale_s: float = SCALE_S) -> None:
        """`basis` has the assumed seconds per unit of each feature; each value is above 0.

        `scale_s`: the time constant of `scale` in seconds.
        """
        size = len(basis)
        self.samples = 0  # Number of learned samples.
        self.scale = 1.0
        self.spread = HUBER  # The mean relative residual, without the excess of outliers.
        self._basis = basis
        self._scale_s = scale_s
        self._shape = [1.0] * size
        self._prior = [1.0] * size  # The shape before the first sample.
        self._moments = [0.0] * (size * size)
        self._targets = [0.0] * size
        self._shares = [0.0] * size  # A buffer that each call of `learn` uses again.
        self._first_scale = 1.0  # The scale before the first sample.
        # Sorted: 1, and the ratios of the first samples to the first coefficients; at last empty.
        self._firsts = [1.0]
        self._at = 0.0  # Time of the last sample, in monotonic seconds.
        self._gap_s = 0.0  # The mean time between two samples.

    def start(self, coefficients: list[float]) -> None:
        """Begin again with the coefficients that were learned from other replicas."""
        total = 0.0
        for index in range(len(self._basis)):
            total += coefficients[index] / self._basis[index]
        if total <= 0.0:
            return
        self.scale = total / len(self._basis)
        for index in range(len(self._basis)):
            self._prior[index] = coefficients[index] / (self._basis[index] * self.scale)
            self._shape[index] = self._prior[index]
        self._first_scale = self.scale

    def coefficient(self, index: int) -> float:
        """Return the learned seconds per unit of one feature; never negative."""
        return self.scale * self._shape[index] * self._basis[index]

    def coefficients(self) -> list[float]:
        return [self.coefficient(index) for index in range(len(self._basis))]

    def predict(self, features: list[float]) -> float:
        """Return the predicted seconds, at least `SHORTEST_S`."""
        total = 0.0
        for index in range(len(self._basis)):
            total += self._shape[index] * self._basis[index] * features[index]
        return max(SHORTEST_S, self.scale * total)

    def learn_longer(self, features: list[float], waited_s: float, now: float) -> None:
        """Learn from a sample whose time is unknown, but longer than `waited_s`.

        If `waited_s` is below the prediction, the sample contains no information and is ignored.
        """
        if waited_s > self.predict(features):
            self.learn(features, waited_s, now)

    def is_due(self, now: float) -> bool:
        """Whether a sample at the time `now` is learned."""
        return self.samples <= FIRST or now - self._at >= LEAST_GAP_S

    def learn(self, features: list[float], took_s: float, now: float) -> None:
        """Learn that `features` took `took_s` seconds. `now` is in monotonic seconds.

        Nothing is learned if the sample is not due (`is_due`).
        """
        if not self.is_due(now):
            return
        elapsed_s = max(0.0, now - self._at) if self.samples else 0.0
        weight = max(GAP_WEIGHT, 1.0 / (self.samples + 1))
        self._gap_s += weight * (min(elapsed_s, SCALE_GAP_S) - self._gap_s)
        predicted_s = self.predict(features)
        took_s = min(max(took_s, SHORTEST_S), LONGEST_S)
        ratio = took_s / predicted_s
        off = 1.0 - 1.0 / ratio
        limit = min(HUBER, HUBER_SPREADS * self.spread)
        most = SPREADS_MOST * self.spread
        self._at = now
        self.samples += 1
        if self.samples > UNFITTED:
            weight = max(SPREAD_WEIGHT, 1.0 / (self.samples - UNFITTED))
            self.spread += weight * (min(abs(off), most) - self.spread)
            self.spread = max(SPREAD_LEAST, self.spread)
        if self.samples <= FIRST:
            step = self._median(features, took_s) / self.scale
        else:
            gain = 1.0 - exp(-self._gap_s / self._scale_s)
            step = exp(gain * min(max(off, -limit), limit))
        self.scale *= step
        fade = exp(-min(elapsed_s, SHAPE_GAP_S) / SHAPE_S)
        if self.samples > UNFITTED:
            self._fit(features, predicted_s * step, ratio / step, limit, fade)

    def _median(self, features: list[float], took_s: float) -> float:
        """Add one of the first samples. Returns the median scale of the samples so far."""
        total = 0.0
        for index in range(len(self._basis)):
            total += self._prior[index] * self._basis[index] * features[index]
        firsts, first_scale = self._firsts, self._first_scale
        insort(firsts, took_s / max(SHORTEST_S, first_scale * total))
        # Of two middle values, the upper one is used: too long a prediction does less harm.
        median = firsts[len(firsts) // 2]
        if self.samples == FIRST:
            firsts.clear()
        return first_scale * median

    def _fit(
        self,
        features: list[float],
        predicted_s: float,
        ratio: float,
        limit: float,
        fade: float,
    ) -> None:
        """Add a sample that took `ratio` times `predicted_s`, and improve the shape."""
        basis, shares, targets = self._basis, self._shares, self._targets
        moments, shape, prior = self._moments, self._shape, self._prior
        size = len(basis)
        # With this weight, the sample pulls the shape as much as its residual pulls the scale.
        residual = abs(1.0 - 1.0 / ratio)
        weight = (1.0 if residual <= limit else limit / residual) / ratio
        scale = self.scale / predicted_s
        for row in range(size):
            shares[row] = scale * basis[row] * features[row]
        for row in range(size):
            share = weight * shares[row]
            targets[row] = fade * targets[row] + share * ratio
            start = row * size
            for column in range(size):
                moments[start + column] = fade * moments[start + column] + share * shares[column]
        if self.samples <= FIRST:
            return
        for _ in range(SWEEPS):
            for row in range(size):
                start = row * size
                rest = targets[row] + RIDGE * prior[row]
                for column in range(size):
                    if column != row:
                        rest -= moments[start + column] * shape[column]
                shape[row] = max(0.0, rest / (moments[start + row] + RIDGE))

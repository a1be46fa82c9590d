"""Learns a time as a weighted sum of features, online, with errors relative to the prediction.

    predicted_s = scale * sum of shape[j] * basis[j] * feature[j]

`basis` has the assumed seconds per unit of each feature, so `shape` and `scale` are 1 before any
sample. They are learned at different speeds:

- `scale` follows a change of the engine's speed: each sample moves it by a share of its relative
  residual, so that it is about the mean over the last `SCALE_S` seconds. A factor of two is learned
  within a minute, at any rate of samples above one per three seconds.
- `shape` says which share of the time each feature causes. It is fitted by least squares to the
  samples of the last `SHAPE_S` seconds, each relative to its prediction, with older samples
  forgotten exponentially. The normal equations contain ratios to the prediction only. So a change
  of `scale` does not invalidate them. A ridge term keeps a shape that the samples do not determine
  close to its first value.

No coefficient is ever negative: the normal equations are solved by coordinate descent with a limit
at 0, which starts from the previous solution. Each sample costs two sweeps, O(features^2).

A single outlier has a bounded effect: a relative residual counts for no more than `HUBER` in the
scale and in the shape (Huber's loss). Both have the same loss, or they would drift in opposite
directions. The first samples are an exception, because the engine may be any factor faster than
assumed.

Must never: read a clock, keep a sample, or return a negative coefficient.
"""

from __future__ import annotations

from math import exp, log
from typing import Final

SCALE_S: Final = 15.0
SHAPE_S: Final = 120.0
# A sample ages the earlier ones by no more than this many seconds. So at low rates some samples are
# remembered for longer: the effective number of samples is at least SHAPE_S / SHAPE_GAP_S.
SCALE_GAP_S: Final = 3.0
SHAPE_GAP_S: Final = 2.0
FIRST: Final = 8  # The scale is the geometric mean of the first samples.
TAUGHT: Final = 3  # Number of samples that coefficients of other replicas count for.
UNBOUNDED: Final = 2  # Number of the first samples whose errors are not limited.
HUBER: Final = 0.5
# Weight of the first shape against one sample: (relative error of a sample)^2 over (relative
# uncertainty of the shape)^2.
RIDGE: Final = 0.05
SWEEPS: Final = 2
# The shortest and longest times in seconds.
SHORTEST_S: Final = 1e-5
LONGEST_S: Final = 1e5


class RelativeFit:
    """The learned coefficients of one sum. Times are seconds."""

    __slots__ = (
        "_at",
        "_basis",
        "_count",
        "_moments",
        "_prior",
        "_shape",
        "_shares",
        "_targets",
        "samples",
        "scale",
    )

    def __init__(self, basis: list[float]) -> None:
        """`basis`: the assumed seconds per unit of each feature; each above 0."""
        size = len(basis)
        self.samples = 0  # Number of learned samples.
        self.scale = 1.0
        self._basis = basis
        self._shape = [1.0] * size
        self._prior = [1.0] * size  # The shape without samples.
        self._moments = [0.0] * (size * size)
        self._targets = [0.0] * size
        self._shares = [0.0] * size  # Reused by each call of `learn`.
        self._count = 0  # Samples that the scale is the mean of, up to FIRST.
        self._at = 0.0  # Time of the last sample, in monotonic seconds.

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
        self._count = TAUGHT

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

        A time below the prediction says nothing, so it is ignored.
        """
        if waited_s > self.predict(features):
            self.learn(features, waited_s, now)

    def learn(self, features: list[float], took_s: float, now: float) -> None:
        """Learn that `features` took `took_s` seconds; `now`: monotonic seconds."""
        predicted_s = self.predict(features)
        ratio = min(max(took_s, SHORTEST_S), LONGEST_S) / predicted_s
        elapsed_s = max(0.0, now - self._at) if self.samples else 0.0
        self._at = now
        self.samples += 1
        if self._count < FIRST:
            self._count += 1
            gain = 1.0 / self._count
        else:
            gain = 1.0 - exp(-min(elapsed_s, SCALE_GAP_S) / SCALE_S)
        if self._count > UNBOUNDED:
            step = exp(gain * min(max(ratio - 1.0, -HUBER), HUBER))
        else:
            step = exp(gain * log(ratio))
        self.scale *= step
        fade = exp(-min(elapsed_s, SHAPE_GAP_S) / SHAPE_S)
        self._fit(features, predicted_s * step, ratio / step, fade)

    def _fit(self, features: list[float], predicted_s: float, ratio: float, fade: float) -> None:
        """Add a sample that took `ratio` times `predicted_s`, and improve the shape."""
        basis, shares, targets = self._basis, self._shares, self._targets
        moments, shape, prior = self._moments, self._shape, self._prior
        size = len(basis)
        residual = abs(ratio - 1.0)
        weight = 1.0 if residual <= HUBER else HUBER / residual
        scale = self.scale / predicted_s
        for row in range(size):
            shares[row] = scale * basis[row] * features[row]
        for row in range(size):
            share = weight * shares[row]
            targets[row] = fade * targets[row] + share * ratio
            start = row * size
            for column in range(size):
                moments[start + column] = fade * moments[start + column] + share * shares[column]
        for _ in range(SWEEPS):
            for row in range(size):
                start = row * size
                rest = targets[row] + RIDGE * prior[row]
                for column in range(size):
                    if column != row:
                        rest -= moments[start + column] * shape[column]
                shape[row] = max(0.0, rest / (moments[start + row] + RIDGE))
